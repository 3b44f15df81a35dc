#!/usr/bin/env bash
# Everything that needs a GPU, in one command: build, contract tests on the cuda and triton backends,
# compute-sanitizer, benchmarks, a sweep of a dump, transformers. No network; needs an NVIDIA GPU with
# its CUDA toolkit and a python3 with torch, triton, scikit-build-core, pybind11, cmake, ninja, pytest,
# hypothesis, pandas.
#
#   bash benchmarks/gpu_check.sh [RESULTS]             all stages, within 8 minutes
#   bash benchmarks/gpu_check.sh --quick [RESULTS]     build, cuda tests, two sets: within 3 minutes
#   bash benchmarks/gpu_check.sh --stages build,bench  some stages: build cuda triton memcheck
#                                                      racecheck bench sweep transformer
#   bash benchmarks/gpu_check.sh --emulated [RESULTS]  dry run on a CPU: host emulator, interpreter
#
# RESULTS defaults to $OUT, then to benchmarks/results (dry run: benchmarks/results/emulated); logs
# land there, and numbers as gpu-DEVICE.json and .md, sweep-DEVICE.json and transformer-DEVICE.json.
# Each stage has its own time limit; a failed stage does not stop the next ones, and the exit status
# is the number of failed stages. Without the stage build, the fastattnerase that python finds is
# checked. The build compiles for the GPU that is there; a wheel in dist/ that this python takes is
# used instead. Where python has no package transformers, the stage transformer is named as not run and
# is no failure; so is the stage sweep without pyarrow or safetensors.
# Variables: PYTHON (python3), LIMIT (seconds in all).
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
mode=gpu quick=0 stages="" results=""
while [ $# -gt 0 ]; do
  case $1 in
    --emulated) mode=emulated ;;
    --quick) quick=1 ;;
    --stages) stages=${2:?--stages: needs a comma-separated list}; shift ;;
    -h | --help) sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "unknown option $1; see --help" >&2; exit 64 ;;
    *) results=$1 ;;
  esac
  shift
done
default=$root/benchmarks/results
[ $mode = emulated ] && default=$default/emulated
results=${results:-${OUT:-$default}}
mkdir -p "$results" || exit 73
results=$(cd "$results" && pwd)
if [ -z "$stages" ]; then
  stages=build,cuda,triton,memcheck,racecheck,bench,sweep,transformer
  [ $quick = 1 ] && stages=build,cuda,bench
fi
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "PYTHON: no such program: $python" >&2; exit 69; }
python=$(command -v "$python")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
# A target folder, not a virtual environment: the python that holds torch may itself be one.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
start=$SECONDS
limit=${LIMIT:-$([ $quick = 1 ] && echo 180 || echo 480)}
[ $mode = emulated ] && limit=${LIMIT:-3600}
verdicts=$work/verdicts
mkdir "$verdicts"

# stage NAME LIMIT COMMAND…: run it unless not asked for; log in NAME.log, verdict in a file, so that
# stages can run side by side.
stage() {
  local name=$1 most=$2 began=$SECONDS left status verdict
  shift 2
  case ,$stages, in *,$name,*) ;; *) return 0 ;; esac
  left=$((limit - (SECONDS - start)))
  [ $most -gt $left ] && most=$left
  if [ $most -lt 5 ]; then
    printf '%-11s NO TIME LEFT\n' "$name" >"$verdicts/$name"
    return
  fi
  echo "== $name, at most $most s"
  (cd "$work" && timeout -k 5 "$most" "$@") >"$results/$name.log" 2>&1
  status=$?
  case $status in
    0) verdict=ok ;;
    77) verdict='not run' ;;
    124 | 137) verdict='TIMED OUT' ;;
    *) verdict="FAILED ($status)" ;;
  esac
  case $verdict in
    ok | 'not run') ;;
    *) echo "-- $name: $verdict"; tail -n 25 "$results/$name.log" ;;
  esac
  # Test counts summed over processes, or what compute-sanitizer says at its end, or why not.
  printf '%-11s %-12s %4s s  %s%s\n' "$name" "$verdict" $((SECONDS - began)) \
    "$(grep -E ' in [0-9.]+s' "$results/$name.log" |
      grep -oE '[0-9]+ (passed|failed|skipped|errors?)' |
      awk '{ n[$2] += $1 } END { for (k in n) printf "%d %s  ", n[k], k }')" \
    "$(grep -E '(ERROR|RACECHECK) SUMMARY|not supported|not installed:' "$results/$name.log" |
      tail -n 1 | tr -d '=' | cut -c1-90)" >"$verdicts/$name"
}

build() {
  local cuda=ON
  if [ $mode = emulated ]; then
    cuda=OFF
  else
    nvidia-smi
  fi
  # A wheel that python takes is of its version and holds the kernels of `make wheel`.
  "$python" -m pip install --quiet --no-deps --only-binary :all: --find-links "$root/dist" \
    --target "$site" fastattnerase 2>/dev/null && echo "the wheel in dist/, nothing built" ||
    "$python" -m pip install --quiet --no-build-isolation --no-deps --target "$site" \
      -C build-dir="$work/build" -C cmake.define.FASTATTNERASE_CUDA=$cuda "$root" || return
  "$python" -c '
import json, sys, fastattnerase
reasons = fastattnerase.backends()
print(json.dumps(reasons, indent=1))
sys.exit(any(reasons[name] for name in sys.argv[1:]))' \
    $([ $mode = emulated ] && echo cpu || echo cpu cuda triton)
}

# contract BACKEND PROCESSES: the contract tests, dealt out to several processes.
contract() {
  local gpu=--gpu part status=0 pids=()
  [ $mode = emulated ] && gpu=
  for ((part = 0; part < $2; part++)); do
    # The package is imported first and the source tree comes last on the path, so that the tests
    # see what was installed, with its native module.
    (
      set -o pipefail
      OMP_NUM_THREADS=1 "$python" -c '
import sys, fastattnerase, pytest
sys.exit(pytest.main(sys.argv[1:]))' --shard "$((part + 1))/$2" \
        --import-mode=append --rootdir "$root" -c "$root/pyproject.toml" -v --tb=short --maxfail=10 \
        -o "cache_dir=$work/cache-$1-$part" $gpu --backends "$1" "$root/python_tests/contract" 2>&1 |
        sed -u "s/^/[$part] /"
    ) &
    pids+=($!)
  done
  for part in "${pids[@]}"; do wait "$part" || status=1; done
  return $status
}

sanitize() {
  local tool=$1
  shift
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer) || return
  local filter=()
  # The library's kernels are in namespace fae; torch's own may look racy to the tool.
  [ "$tool" = racecheck ] && filter=(--kernel-regex kns=fae)
  "$sanitizer" --tool "$tool" --error-exitcode 9 "${filter[@]}" \
    "$python" "$root/benchmarks/sanitizer_cases.py" "$@"
}

# What was measured on which device is told by the file's name.
device() {
  "$python" -c '
import re, torch
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "emulated"
print(re.sub("[^a-z0-9]+", "-", name.lower()).strip("-"))'
}

bench() {
  local name
  name=$(device) || return
  "$python" "$root/benchmarks/gpu.py" --json "$results/gpu-$name.json" "$@"
}

# Ends with 77, which is "not run", where one of these packages is missing.
installed() {
  "$python" -c '
import importlib.util, sys
missing = [name for name in sys.argv[1:] if not importlib.util.find_spec(name)]
if missing:
    print(*missing, "not installed: nothing was checked")
    sys.exit(77)' "$@"
}

# A dump of 2 GB, swept; what copies, kernels and results take of the time.
sweep() {
  installed pyarrow safetensors || return
  local name
  name=$(device) || return
  "$python" "$root/benchmarks/scale_gpu.py" --json "$results/sweep-$name.json" "$@"
}

# Tiny classifiers of each family on the GPU, then the benchmark, with random weights.
transformer() {
  installed transformers tokenizers || return
  local name gpu=(--gpu -k "not cpu") flags=(--device cuda)
  [ $mode = emulated ] && gpu=() flags=(--smoke)
  name=$(device) || return
  # Another release of transformers may warn of what the next one changes.
  OMP_NUM_THREADS=1 "$python" -c '
import sys, fastattnerase, pytest
sys.exit(pytest.main(sys.argv[1:]))' --import-mode=append --rootdir "$root" \
    -c "$root/pyproject.toml" -q --tb=short --maxfail=10 -o filterwarnings=default \
    -o "cache_dir=$work/cache-transformer" "${gpu[@]}" \
    "$root/python_tests/huggingface/test_last_layer.py" \
    "$root/python_tests/huggingface/test_devices.py" || return
  "$python" "$root/benchmarks/transformer.py" "${flags[@]}" --json "$results/transformer-$name.json"
}

export -f build contract sanitize device bench installed sweep transformer
export mode root python site work results

flags=()
[ $quick = 1 ] && flags+=(--quick)
if [ $mode = gpu ]; then
  stage build 200 bash -c build
  # Correctness side by side, most of it is the judge's work on the CPU; the clock runs alone after.
  stage cuda 150 bash -c 'contract cuda 5' &
  stage triton 150 bash -c 'contract triton 6' &
  stage memcheck 100 bash -c 'sanitize memcheck' &
  stage racecheck 100 bash -c 'sanitize racecheck --smallest' &
  wait
  stage bench 200 bash -c 'bench "$@"' bench "${flags[@]}"
  stage sweep 90 bash -c sweep
  stage transformer 100 bash -c transformer
else
  stage build 900 bash -c build
  stage cuda 1500 bash -c 'contract cuda-emulated 1' &
  stage triton 1500 bash -c 'contract triton 1' &
  # compute-sanitizer needs a GPU: its cases run bare here, on the emulator.
  stage memcheck 600 "$python" "$root/benchmarks/sanitizer_cases.py" --emulated &
  wait
  stage bench 600 bash -c 'bench --emulated "$@"' bench "${flags[@]}"
  stage sweep 300 bash -c 'sweep --device cpu --items 400000 --shard-bytes 20000000'
  stage transformer 300 bash -c transformer
fi

echo
case ,$stages, in *,bench,*) sed -n '/^| set /,$p' "$results/bench.log" ;; esac
echo
failed=$(cat "$verdicts"/* | grep -vcE ' (ok|not run) ')
{
  for name in build cuda triton memcheck racecheck bench sweep transformer; do
    [ -f "$verdicts/$name" ] && cat "$verdicts/$name"
  done
  echo "$mode: $failed failed, $((SECONDS - start)) s"
}
exit "$failed"
