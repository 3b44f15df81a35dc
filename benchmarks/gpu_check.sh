#!/usr/bin/env bash
# Everything that needs a GPU, in one command: build, contract tests on the cuda and triton backends,
# compute-sanitizer, benchmarks. No network; needs an NVIDIA GPU with its CUDA toolkit and a python3
# with torch, triton, scikit-build-core, pybind11, cmake, ninja, pytest, hypothesis, pandas.
#
#   bash benchmarks/gpu_check.sh [RESULTS]             all stages, within 8 minutes
#   bash benchmarks/gpu_check.sh --quick [RESULTS]     build, cuda tests, two sets: within 3 minutes
#   bash benchmarks/gpu_check.sh --stages build,bench  some stages: build cuda triton memcheck
#                                                      racecheck bench
#   bash benchmarks/gpu_check.sh --emulated [RESULTS]  dry run on a CPU: host emulator, interpreter
#
# RESULTS defaults to $OUT, then to benchmarks/results/gpu_check. Each stage has its own time limit and
# its own log there; a failed stage does not stop the next ones, and the exit status is the number
# of failed stages. Variables: PYTHON (python3), LIMIT (seconds in all).
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
mode=gpu quick=0 stages="" results=""
while [ $# -gt 0 ]; do
  case $1 in
    --emulated) mode=emulated ;;
    --quick) quick=1 ;;
    --stages) stages=${2:?--stages: needs a comma-separated list}; shift ;;
    -h | --help) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "unknown option $1; see --help" >&2; exit 64 ;;
    *) results=$1 ;;
  esac
  shift
done
results=${results:-${OUT:-$root/benchmarks/results/gpu_check}}
mkdir -p "$results" || exit 73
results=$(cd "$results" && pwd)
if [ -z "$stages" ]; then
  stages=build,cuda,triton,memcheck,racecheck,bench
  [ $quick = 1 ] && stages=build,cuda,bench
fi
python=${PYTHON:-python3}
python=$(command -v "$python") || { echo "PYTHON: no such program: $PYTHON" >&2; exit 69; }
# A target folder, not a virtual environment: the python that holds torch may itself be one.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
start=$SECONDS
limit=${LIMIT:-$([ $quick = 1 ] && echo 180 || echo 480)}
[ $mode = emulated ] && limit=${LIMIT:-1800}
summary=() failed=0

# stage NAME LIMIT COMMAND…: run it unless not asked for; its log is NAME.log.
stage() {
  local name=$1 most=$2 began=$SECONDS left status verdict
  shift 2
  case ,$stages, in *,$name,*) ;; *) return 0 ;; esac
  left=$((limit - (SECONDS - start)))
  if [ $left -lt 5 ]; then
    summary+=("$(printf '%-10s %-12s %4s s' "$name" 'NO TIME LEFT' 0)")
    failed=$((failed + 1))
    return 1
  fi
  [ $most -gt $left ] && most=$left
  echo "== $name"
  (cd "$work" && timeout -k 5 "$most" "$@") >"$results/$name.log" 2>&1
  status=$?
  verdict=ok
  if [ $status = 124 ] || [ $status = 137 ]; then
    verdict="TIMED OUT"
  elif [ $status != 0 ]; then
    verdict="FAILED ($status)"
  fi
  [ "$verdict" = ok ] || { failed=$((failed + 1)); tail -n 25 "$results/$name.log"; }
  local last
  last=$(grep -E '^(=+ )?[0-9]+ (passed|failed)|^=.* (passed|failed)|ERROR SUMMARY|RACECHECK SUMMARY|Target device' \
    "$results/$name.log" | tail -n 1 | tr -d '=' | cut -c1-90)
  summary+=("$(printf '%-10s %-12s %4s s  %s' "$name" "$verdict" $((SECONDS - began)) "$last")")
  [ "$verdict" = ok ]
}

build() {
  local cuda=ON
  [ $mode = emulated ] && cuda=OFF
  "$python" -m pip install --quiet --no-build-isolation --no-deps --target "$site" \
    -C build-dir="$work/build" -C cmake.define.FASTATTNERASE_CUDA=$cuda "$root" || return
  "$python" -c '
import json, sys, fastattnerase
reasons = fastattnerase.backends()
print(json.dumps(reasons, indent=1))
sys.exit(any(reasons[name] for name in sys.argv[1:]))' \
    $([ $mode = emulated ] && echo cpu || echo cpu cuda triton)
}

contract() {
  local gpu=--gpu
  [ $mode = emulated ] && gpu=
  # The package is imported first and the source tree comes last on the path, so that the tests
  # see what was installed, with its native module.
  "$python" -c 'import sys, fastattnerase, pytest; sys.exit(pytest.main(sys.argv[1:]))' \
    --import-mode=append --rootdir "$root" -c "$root/pyproject.toml" -p no:cacheprovider -q -x \
    $gpu --backends "$1" ${2:-} "$root/python_tests/contract"
}

sanitize() {
  local tool=$1
  shift
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer) || return
  "$sanitizer" --tool "$tool" --error-exitcode 9 --kernel-regex kns=fae \
    "$python" "$root/benchmarks/sanitizer_cases.py" "$@"
}

bench() {
  "$python" "$root/benchmarks/gpu.py" --json "$results/gpu.json" "$@"
}

export -f build contract sanitize bench
export mode root python site work results

flags=()
[ $quick = 1 ] && flags+=(--quick)
if [ $mode = gpu ]; then
  nvidia-smi >"$results/machine.log" 2>&1
  stage build 200 bash -c build
  stage cuda 120 bash -c 'contract cuda'
  stage triton 120 bash -c 'contract triton'
  stage bench 200 bash -c 'bench "$@"' bench "${flags[@]}"
  stage memcheck 70 bash -c 'sanitize memcheck'
  stage racecheck 60 bash -c 'sanitize racecheck --smallest'
else
  stage build 300 bash -c build
  stage cuda 600 bash -c 'contract cuda-emulated'
  stage triton 900 bash -c 'contract triton'
  stage bench 300 bash -c 'bench --emulated "$@"' bench "${flags[@]}"
  # compute-sanitizer has no CPU form; the emulator runs under AddressSanitizer in the tests.
fi

echo
[ -f "$results/bench.log" ] && sed -n '/^| set /,$p' "$results/bench.log"
echo
{
  printf '%s\n' "${summary[@]}"
  echo "$mode: $failed failed, $((SECONDS - start)) s, results in $(basename "$results")"
} | tee "$results/summary.txt"
exit $failed
