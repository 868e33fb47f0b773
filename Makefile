# Every target sets up its own virtual environment; nothing else is needed but Python 3.10+ and, for speed, a C++ compiler.
PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/outspan/kernels/cpu/*.cpp src/outspan/kernels/cpu/*.h)

.PHONY: demo test lint bench clean

demo: .venv/core  ## the main job on embedded digits: three policies, three seeds; then what four transforms do; tables and pictures
	$(BIN)/outspan compare recipes/digits.toml --policies none,random,uncertain --seeds 3 --jobs 2 -o demo
	$(BIN)/outspan measure --transforms rotate,shear_x,cutout,invert --seeds 3 --set epochs=5 -o demo/measured

test: .venv/ready  ## the whole suite
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto  # a worker a core: threads of their own would wait for one another

lint: .venv/ready  ## style and types
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyright

bench: .venv-bench/ready  ## the speed claims, with the peers beside us; rewrites results/transforms-cpu.json
	$(BENCH)/python benchmarks/transforms.py

.venv/core: $(SOURCES)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .  # what is imported compiles then
	touch $@

.venv/ready: .venv/core
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv-bench/ready: $(SOURCES)
	$(PYTHON) -m venv .venv-bench
	$(BENCH)/python -m pip install --quiet --constraint constraints.txt torch
	$(BENCH)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	touch $@

clean:
	rm -rf .venv .venv-bench build demo
