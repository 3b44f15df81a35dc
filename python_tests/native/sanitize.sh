#!/usr/bin/env bash
# Native code under the sanitizers; builds in build/sanitize-*, with the cmake and python on PATH.
#   sanitize.sh           everything
#   sanitize.sh --short   what CI runs: no build of the Python extension, no emulated kernels
set -euo pipefail
cd "$(dirname "$0")/../.."

short=0
for argument in "$@"; do
  case "$argument" in
    --short) short=1 ;;
    *) echo "usage: sanitize.sh [--short]" >&2; exit 2 ;;
  esac
done
jobs="$(nproc)"

not_run() {  # what; .ci/run collects these in a file and shows them at its end
  echo "not run: $1"
  if [ -n "${FASTATTNERASE_TEST_NOT_RUN:-}" ]; then echo "$1" >> "$FASTATTNERASE_TEST_NOT_RUN"; fi
}

native() {  # name, sanitizers, targets (all where empty): the native test
  cmake -S python_tests/native -B "build/sanitize-$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DFASTATTNERASE_SANITIZE="$2" -DFASTATTNERASE_CPU_TARGETS="$3" > /dev/null
  cmake --build "build/sanitize-$1" -j "$jobs" > /dev/null
  echo "native test, -fsanitize=$2"
  "build/sanitize-$1/stress" | tee "build/sanitize-$1/said"
  while read -r line; do not_run "sanitizers $2: ${line#not run: }"; done \
    < <(grep '^not run: ' "build/sanitize-$1/said" || true)
}

native thread thread plain  # what threads share is shared out by code that all targets have
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
native address "address;undefined" ""
not_run "sanitizers: the stack of csrc/cpu/targets/*.cpp, compiled unwatched"
if [ "$short" = 1 ]; then
  not_run "sanitizers: the Python extension (make sanitize)"
  exit 0
fi

# The extension itself, loaded by a Python that does not know it is sanitized.
cmake -S . -B build/sanitize-extension -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFASTATTNERASE_CUDA=OFF \
  -DFASTATTNERASE_SANITIZE="address;undefined" -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" \
  -DPython_EXECUTABLE="$(command -v python)" > /dev/null
cmake --build build/sanitize-extension -j "$jobs" --target _C > /dev/null
echo "extension under address and undefined-behaviour sanitizers"
compiler="$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' build/sanitize-extension/CMakeCache.txt)"
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 FASTATTNERASE_SANITIZED_EXTENSION=build/sanitize-extension \
  PYTHONPATH=python_tests/native python -m pytest -q -p sanitized_extension -p no:cacheprovider \
  python_tests/native

# The CUDA kernels on the host emulator, every path of them.
python python_tests/cuda/emulator.py build/sanitize-emulator "address;undefined"
echo "emulated CUDA kernels under address and undefined-behaviour sanitizers"
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 FASTATTNERASE_EMU_BUILD="$PWD/build/sanitize-emulator" \
  python -m pytest -q -p no:cacheprovider python_tests/cuda/test_paths.py \
  python_tests/cuda/test_emulator.py
