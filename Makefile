# Everything sets itself up: a virtual environment in .venv, made anew when pyproject.toml or its lock changes.
#   make PYTHON=python3.13 VENV=.venv-3.13 check     another Python, beside the default one
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Byte code is kept also where Python is told not to: pytest would rewrite 300 test files in each worker, each time.
export PYTHONDONTWRITEBYTECODE :=
LOCKS := .ci/locks
VERSION := import sys; print("python%d.%d" % sys.version_info[:2])

.PHONY: help demo test check lint format lock bench bench-cluster bench-starts bench-hostile fuzz jepsen txn-kills group-kills streams-calls bad-disks cut-links spark-kills spark-jobs pipeline bench-spark client-kafka kafka-answers check-deep verify-mutants sim sim-swarm sim-mutants clean

help:
	@echo "make demo        three brokers, real data through them, their leaders killed with -9 twice, and a count"
	@echo "make check       lint, types and the unit tests of every part: after each change"
	@echo "make test        lint, types and the whole test suite, and its ten slowest tests"
	@echo "make bench       measure against Apache Kafka, side by side, as one table of ratios"
	@echo "make bench-cluster  the same for three brokers beside three of Kafka"
	@echo "make bench-starts N=n  a Kafka for tests started n times in a row: failures, and seconds to the first record"
	@echo "make bench-hostile  what bombs, half requests, thousands of topics, joins and fetches cost everybody else"
	@echo "make fuzz        a million mutated frames against a broker"
	@echo "make sim SEED=n  one simulated run of each kind from a seed, twice"
	@echo "make sim-swarm MINUTES=n  simulated runs on all cores; failing seeds are told and shortened"
	@echo "make sim-mutants each known fault put into the code, and after how many seeds it is noticed"
	@echo "make jepsen MINUTES=n JOBS=n  every workload with every fault on real processes; goes on where it was stopped"
	@echo "make verify-mutants  the same faults in the code of real processes, and after how many seconds a run notices them"
	@echo "make txn-kills   brokers and clients killed at every step of a transaction"
	@echo "make group-kills brokers and members killed with -9 at every step of a rebalance, under both group protocols"
	@echo "make streams-calls  what Kafka Streams asks a broker, and Kafka's answers to it (Java)"
	@echo "make bad-disks   a broker's disk is full, slow, fails or has no inodes (root)"
	@echo "make cut-links   links between brokers in network namespaces are cut and healed (root)"
	@echo "make spark-kills a Spark query's workers, executors, driver and brokers killed with -9 at every step of its writing"
	@echo "make spark-jobs  the jobs of the pipeline, and raftlog on a standalone cluster of Spark and through Spark Connect"
	@echo "make pipeline    real flights through jobs on Spark while a broker and an executor are killed, and a count"
	@echo "make bench-spark the data source for Spark beside Spark's own Kafka connector"
	@echo "make client-kafka  the client's tests against Apache Kafka, as they run against raftlog"
	@echo "make kafka-answers  what Apache Kafka answers to the questions of tests/system/answers, written down anew (Java)"
	@echo "make check-deep EFFORT=n  the random tests of every part, n times as many tries as usual (DEEP=folders: of those)"
	@echo "make lint        ruff and mypy"
	@echo "make format      what ruff can mend by itself"
	@echo "make lock        take the newest versions for tests, lint and demo on this Python (PYTHON=python3.N: on that)"
	@echo "make clean       remove what the others made"

# The lock of this Python's version says what is installed, and with what it is built. A Python without one gets the
# ranges of pyproject.toml.
$(READY): pyproject.toml $(wildcard $(LOCKS)/*.txt)
	$(PYTHON) -m venv --clear $(VENV)
	@lock=$(LOCKS)/$$($(BIN)/python -c '$(VERSION)').txt; [ -f $$lock ] || lock=/dev/null; set -e; \
	export PIP_CONSTRAINT=$$lock PIP_BUILD_CONSTRAINT=$$lock; \
	echo "installing what $$lock names into $(VENV)"; \
	$(BIN)/python -m pip install --quiet --upgrade pip; \
	$(BIN)/python -m pip install --quiet --editable '.[test,lint,demo]'
	@touch $(READY)

# PySpark is half a gigabyte, and only its own tests need it: it is there for make test, where Java is.
SPARK := $(VENV)/.spark
$(SPARK): $(READY)
	@lock=$(LOCKS)/$$($(BIN)/python -c '$(VERSION)').txt; [ -f $$lock ] || lock=/dev/null; set -e; \
	export PIP_CONSTRAINT=$$lock PIP_BUILD_CONSTRAINT=$$lock; \
	if command -v java >/dev/null; then $(BIN)/python -m pip install --quiet --editable '.[pipeline]'; \
	else echo "no Java: the tests of the pipeline on Spark are skipped"; fi
	@touch $(SPARK)

lock:
	rm -rf .make/lock
	$(PYTHON) -m venv .make/lock
	.make/lock/bin/python -m pip install --quiet --upgrade pip setuptools
	.make/lock/bin/python -m pip install --quiet --editable '.[test,lint,demo,pipeline]'
	mkdir -p $(LOCKS)
	.make/lock/bin/python -m pip freeze --all --exclude-editable >$(LOCKS)/$$(.make/lock/bin/python -c '$(VERSION)').txt
	rm -rf .make/lock

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

test: lint compiled $(SPARK)
	$(BIN)/pytest -q -m "not slow" -n $(WORKERS) --dist loadfile --durations 10

# Unit tests by folder, without those that are marked for taking seconds, Java or processes of their own.
UNIT := tests/raftlog tests/metadata tests/broker tests/client tests/pipeline tests/linearizability tests/test_*.py

# Much of its time its tests wait.
check: WORKERS = 4
check: lint
	RAFTLOG_TEST_EFFORT=0.1 $(BIN)/pytest -q -m "not slow and not long and not java" -n $(WORKERS) --dist loadfile $(UNIT)

bench: compiled
	$(BIN)/python -m benchmarks.table

bench-cluster: compiled
	$(BIN)/python -m benchmarks.cluster

N ?= 1000

bench-starts: compiled
	$(BIN)/python -m benchmarks.starts $(N)

bench-hostile: compiled
	$(BIN)/python -m benchmarks.hostile

fuzz: compiled
	$(BIN)/python -m pytest -q -m slow tests/system/fuzz

txn-kills: compiled
	$(BIN)/python -m pytest -q $(addprefix tests/system/cluster/test_transaction_,kills.py broker_steps.py clients.py versions.py)

group-kills: compiled
	$(BIN)/python -m pytest -q -m "slow or long" tests/system/clients/test_consumer_protocol.py tests/system/cluster/test_rebalance_kills.py

streams-calls: compiled
	$(BIN)/python -m pytest -q -m slow tests/system/clients/test_platforms.py

bad-disks: compiled
	$(BIN)/python -m pytest -q -m slow tests/system/cluster/test_full_disk_recovery.py tests/system/cluster/test_bad_disks.py

cut-links: compiled
	$(BIN)/python -m pytest -q -m slow tests/system/cluster/test_cut_links.py

spark-kills: compiled $(SPARK)
	$(BIN)/python -m pytest -q -m slow tests/pipeline/test_spark_kills.py tests/pipeline/sink

spark-jobs: compiled $(SPARK)
	$(BIN)/python -m pytest -q -m slow tests/pipeline/jobs/test_jobs.py tests/pipeline/test_spark_clusters.py

# Without Java the command itself says what is missing.
pipeline: compiled $(SPARK)
	$(BIN)/raftlog pipeline demo

bench-spark: compiled $(SPARK)
	$(BIN)/python -m benchmarks.spark --kafka

client-kafka: compiled
	$(BIN)/python -m pytest -q -m "slow and java" tests/client

kafka-answers: compiled
	$(BIN)/python -m tests.system.answers.test_answers

EFFORT ?= 50
DEEP ?= $(UNIT)

check-deep: $(READY)
	RAFTLOG_TEST_EFFORT=$(EFFORT) $(BIN)/pytest -q -m "not slow and not java" -n $(WORKERS) $(DEEP)

SEED ?= 1
MINUTES ?= 5
JOBS ?= 1
PART ?=
SIMULATOR := $(BIN)/python -m raftlog.linearizability.simulator
PARTS := $(addprefix --part ,$(PART))

jepsen: compiled
	$(BIN)/python -m raftlog.linearizability.harness.matrix --minutes $(MINUTES) --jobs $(JOBS)

verify-mutants: compiled
	$(BIN)/python -m raftlog.linearizability.harness.mutation_report --at-once $(JOBS)

sim: compiled
	$(SIMULATOR) run $(SEED) --shrink $(PARTS)

sim-swarm: compiled
	$(SIMULATOR) swarm --minutes $(MINUTES) $(PARTS)

sim-mutants: compiled
	$(SIMULATOR) mutants $(PARTS)

clean:
	rm -rf .venv .venv-* .make build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
