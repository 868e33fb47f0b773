# Every target sets up its own virtual environment; nothing else is needed but Python 3.10+ and, for speed, a C++ compiler.
PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/outspan/transforms/kernels/cpu/*.cpp src/outspan/transforms/kernels/cpu/*.h)

.PHONY: demo docs test test-slow test-cluster lint bench fuzz clean

demo: .venv/core  ## the main job on the included digits: three policies for the same time, three seeds; then what four transforms do
	$(BIN)/outspan compare --data digits --model convnet --policies none,random,auto --equal time --seeds 3 --jobs 2 -o demo
	$(BIN)/outspan measure --transforms rotate,shear_x,cutout,invert --seeds 3 --set epochs=5 -o demo/measured
	$(BIN)/outspan report demo -o demo/report.html

docs: .venv/docs  ## the documentation site in build/docs/html; a broken link or a missing reference is an error
	$(BIN)/python docs/site/build.py

# One worker per core, one thread per worker: more threads would wait for one another. Override: make test OMP_NUM_THREADS=2
test test-slow test-cluster: export OMP_NUM_THREADS ?= 1
test test-slow test-cluster: export OPENBLAS_NUM_THREADS ?= $(OMP_NUM_THREADS)
# Packages are installed without bytecode and tests start many processes: without its cache each would compile all of torch again.
test test-slow test-cluster: export PYTHONDONTWRITEBYTECODE =

test: .venv/ready  ## the ordinary test suite, a few minutes
	$(BIN)/python -m pytest -n auto --durations=10

test-slow: .venv/ready  ## the tests marked slow: larger models, more kills, real processes
	$(BIN)/python -m pytest -n auto --durations=10 -rs -m slow

test-cluster: .venv/ready  ## the tests that start a Ray cluster of two nodes on this machine, one after another
	$(BIN)/python -m pytest --durations=10 -m cluster

lint: .venv/ready  ## style and types
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyright

fuzz: .venv/ready  ## MINUTES for each of TARGETS: images, checkpoints, recipes, policies, tables, plans, kernel (with AddressSanitizer)
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --minutes $(or $(MINUTES),1) $(if $(TARGETS),--targets $(TARGETS)) $(if $(SEED),--seed $(SEED)) $(if $(RESULT),--result $(RESULT))

bench: .venv-bench/ready  ## the speed claims, with the peers beside us; rewrites results/transforms-cpu.json
	$(BENCH)/python benchmarks/transforms.py

.venv/core: $(SOURCES)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .  # what is imported compiles then
	touch $@

.venv/ready: .venv/core
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv/docs: .venv/core
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[docs]"
	touch $@

.venv-bench/ready: $(SOURCES)
	$(PYTHON) -m venv .venv-bench
	$(BENCH)/python -m pip install --quiet --constraint constraints.txt torch
	$(BENCH)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	touch $@

clean:
	rm -rf .venv .venv-bench build demo
