# Everything sets itself up: a virtual environment in .venv, made anew when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: help demo test check lint format bench bench-cluster fuzz check-deep sim sim-swarm sim-mutants clean

help:
	@echo "make demo        three brokers, the main job on real data, their leaders killed with -9 twice, and a count"
	@echo "make test        lint, types and the whole test suite"
	@echo "make check       lint, types and the quick tests, no servers"
	@echo "make bench       measure against Apache Kafka, side by side, as one table of ratios"
	@echo "make bench-cluster  the same for three brokers beside three of Kafka"
	@echo "make fuzz        a million mutated frames against a broker"
	@echo "make sim SEED=n  one simulated run of each kind from a seed, twice"
	@echo "make sim-swarm MINUTES=n  simulated runs on all cores; failing seeds are told and shortened"
	@echo "make sim-mutants each known fault put into the code, and after how many seeds it is noticed"
	@echo "make check-deep  the checker against brute force, 100,000 histories a model"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint,demo]'
	@touch $(READY)

# Compiled ahead, so that a broker starts as fast where Python is told not to write byte code.
.PHONY: compiled
compiled: $(READY)
	@$(BIN)/python -m compileall -q raftlog metadata broker client pipeline linearizability

demo: compiled
	$(BIN)/raftlog demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy -p raftlog

format: $(READY)
	$(BIN)/ruff check --fix .

test: lint compiled
	$(BIN)/pytest -q -m "not slow" -n $(WORKERS) --dist loadfile

check: lint
	$(BIN)/pytest -q -m "not slow" tests/raftlog/wire tests/metadata tests/linearizability/checker tests/test_architecture.py tests/test_tidy.py

bench: compiled
	$(BIN)/python -m benchmarks.table

bench-cluster: compiled
	$(BIN)/python -m benchmarks.cluster

fuzz: compiled
	$(BIN)/python -m pytest -q -m slow tests/system/fuzz

check-deep: $(READY)
	RAFTLOG_CHECK_DEEP=1 $(BIN)/pytest -q tests/linearizability/checker tests/linearizability/checker/kafka

SEED ?= 1
MINUTES ?= 5
PART ?=
SIMULATOR := $(BIN)/python -m raftlog.linearizability.simulator
PARTS := $(addprefix --part ,$(PART))

sim: compiled
	$(SIMULATOR) run $(SEED) --shrink $(PARTS)

sim-swarm: compiled
	$(SIMULATOR) swarm --minutes $(MINUTES) $(PARTS)

sim-mutants: compiled
	$(SIMULATOR) mutants $(PARTS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
