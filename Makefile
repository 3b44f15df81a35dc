# Everything a newcomer or CI runs. Each target makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# The native module is rebuilt when one of these changes; Python files are used in place.
NATIVE := CMakeLists.txt pyproject.toml constraints.txt $(shell find csrc kernels/cuda -type f)

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-exhaustive test-fast lint format sanitize sanitize-short bench-smoke bench study gpu-check wheel clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Three environments, each holding the one before: one build serves them all.
$(VENV)/.run: $(BIN)/python $(NATIVE)
	$(PIP) install --quiet -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.test: $(BIN)/python $(NATIVE)
	$(PIP) install --quiet -c constraints.txt -e '.[all,test]'
	@touch $(VENV)/.run $@

$(VENV)/.dev: $(BIN)/python $(NATIVE)
	$(PIP) install --quiet -c constraints.txt -e '.[all,test,dev]'
	@touch $(VENV)/.run $(VENV)/.test $@

demo: $(VENV)/.run  ## train a small model on real sentences, erase, and write the report
	$(BIN)/fastattnerase demo

# DURATIONS=1 prints the processor time of each file and test function.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest -n auto $(if $(DURATIONS),--durations-by-file)

test: $(VENV)/.test build/emu/.built build/served/.built  ## the tests, on every backend that can run here
	$(PYTEST) -m "not long"

test-long: $(VENV)/.test build/emu/.built build/served/.built  ## the tests that `make test` leaves to CI
	$(PYTEST) -m long

# Ten times as many instances of every exact answer as the tests of CI judge.
test-exhaustive: $(VENV)/.test  ## ten thousand small instances of every exact answer against all subsets
	FASTATTNERASE_TEST_EXHAUSTIVE=1 $(PYTEST) -m long -k ten_thousand python_tests/contract

test-fast: $(VENV)/.test  ## the tests without the cross-backend contract suite
	$(PYTEST) -m "not long" --ignore=python_tests/contract --ignore=python_tests/cuda --ignore=python_tests/triton

# The CUDA kernels on the host emulator, built before the test processes that share it.
build/emu/.built: $(VENV)/.test
	$(BIN)/python python_tests/cuda/emulator.py
	@touch $@

# The engine for other processors, where the machine can build and emulate it.
build/served/.built: $(VENV)/.test
	$(BIN)/python python_tests/contract/served.py
	@mkdir -p build/served && touch $@

lint: $(VENV)/.dev  ## ruff, mypy and clang-format
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh')

format: $(VENV)/.dev  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format . ; $(BIN)/clang-format -i $$(git ls-files '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh')

sanitize: $(VENV)/.test  ## native code under address, undefined-behaviour and thread sanitizers
	PATH="$(abspath $(BIN)):$$PATH" bash python_tests/native/sanitize.sh

sanitize-short: $(VENV)/.test  ## the short form that CI runs
	PATH="$(abspath $(BIN)):$$PATH" bash python_tests/native/sanitize.sh --short

bench-smoke: $(VENV)/.test  ## every benchmark at toy size, results compared
	$(BIN)/python benchmarks/run.py --smoke && $(BIN)/python benchmarks/mi.py --smoke
	$(BIN)/python benchmarks/permute.py --smoke && $(BIN)/python benchmarks/prefix_measures.py --smoke
	$(BIN)/python benchmarks/saliency.py --smoke && $(BIN)/python benchmarks/transformer.py --smoke
	$(BIN)/python benchmarks/exact.py --smoke
	$(BIN)/python benchmarks/mil.py --smoke

bench: $(VENV)/.test  ## the CPU benchmarks (minutes; wants a quiet machine)
	$(BIN)/python benchmarks/run.py --json benchmarks/results/cpu.json

# With STUDY, another file of benchmarks/studies; with OUT, another folder. It goes on after a kill.
STUDY ?= serrano_smith_seeds
OUT ?= runs/$(STUDY)

study: $(VENV)/.run  ## a study with five seeds a model, two hours: make study DATA=folder-of-corpora
	$(if $(DATA),,$(error DATA: given nothing, needed the folder of the corpora))
	OMP_NUM_THREADS=1 $(BIN)/fastattnerase reproduce serrano-smith --data-root $(DATA) \
	  --study benchmarks/studies/$(STUDY).toml --jobs 2 --out $(OUT)

gpu-check:  ## build, contract tests and benchmarks on a machine with an NVIDIA GPU
	bash benchmarks/gpu_check.sh

wheel: $(BIN)/python  ## build a wheel into dist/
	$(PIP) wheel --no-deps -w dist .

clean:  ## remove the environment and all build outputs
	rm -rf $(VENV) build dist .demo
