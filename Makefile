# Everything a developer or CI does, one target each. `make` alone lists them.
# Needs make and Python 3.11, 3.12 or 3.13; another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])' 2>/dev/null)
LOCK := requirements/py$(VERSION).lock
# One stamp per Python, so that another PYTHON makes the environment anew.
PACKAGES := $(VENV)/.packages-py$(VERSION)
STAMP := $(VENV)/.ready-py$(VERSION)
# The readers that cannot be in our environment; Spark keeps the jars for tests beside them.
READERS := .readers
READERS_LOCK := requirements/readers/readers.lock
READERS_STAMP := $(READERS)/.ready-py$(VERSION)
TRINO_STAMP := $(READERS)/.trino
# A Spark Connect client, which cannot be installed beside PySpark.
CONNECT_LOCK := requirements/connect/connect.lock
CONNECT_STAMP := $(READERS)/.connect-py$(VERSION)
JARS_STAMP := $(READERS)/.jars
# The classes of the tests' Sparks, so that each starts in half the time.
ARCHIVE_STAMP := $(READERS)/.classes
# The servers that tests start, out of Debian's packages and unpacked below here.
SERVERS := .servers
SERVERS_STAMP := $(SERVERS)/.ready

JAR := spark_ext/jvm/mergeberg-spark.jar

CODE := $(wildcard tableformat catalog spark_ext conformance) tests
PYTEST := $(BIN)/python -m pytest
# A file's tests stay together and in the order of tests/conftest.py; a test that ends its process is
# begun once more at most. Three, because two leave a fifth of two cores idle: tests wait for others.
AT_ONCE := --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv jar demo clean-demo check test readers servers services soak model big bench lint format lock lock-readers clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with exactly the versions of requirements/

$(PACKAGES): $(LOCK)
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes --requirement $(LOCK)
	touch $@

$(STAMP): $(PACKAGES) pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(READERS_STAMP): $(READERS_LOCK)
	rm -rf $(READERS)/venv $(READERS)/.ready-*
	$(PYTHON) -m venv $(READERS)/venv
	$(READERS)/venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

# Half a gigabyte, which `make test` does without.
$(TRINO_STAMP): tests/services/trino_files.py | $(STAMP) $(READERS_STAMP)
	$(BIN)/python -m tests.services.trino_files
	touch $@

$(CONNECT_STAMP): $(CONNECT_LOCK)
	rm -rf $(READERS)/connect $(READERS)/.connect-*
	$(PYTHON) -m venv $(READERS)/connect
	$(READERS)/connect/bin/pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes --requirement $<
	touch $@

# Without a list of files: columns and defaults from anywhere in our Python are in the jar. A digest of
# what it is made of tells whether it is current, in two seconds.
jar: $(STAMP) ## Make the Java side of Spark SQL anew, when something in it has changed
	$(BIN)/python -m spark_ext.jvm.build

# Before the tests, because two processes must not fetch into one directory at once.
$(JARS_STAMP): tests/iceberg_runtime.py spark_ext/pinned_jars.py tests/services/hdfs_jars.py tests/services/rest_jars.py tests/services/s3proxy_jar.py | $(STAMP)
	$(BIN)/python -m tests.services.java_catalog
	$(BIN)/python -m tests.services.hdfs_jars
	$(BIN)/python -m tests.services.rest_jars
	$(BIN)/python -m tests.services.s3proxy_jar
	touch $@

$(ARCHIVE_STAMP): tests/services/class_archive.py $(JARS_STAMP) $(PACKAGES)
	$(BIN)/python -m tests.services.class_archive
	touch $@

$(SERVERS_STAMP): tests/services/debian_packages.py | $(STAMP)
	$(BIN)/python -m tests.services.debian_packages $(SERVERS)/clickhouse-18.16 clickhouse-server
	touch $@

requirements/py.lock:
	@echo "Cannot make the environment: there is no Python named '$(PYTHON)'. Install Python 3.11, 3.12 or 3.13, or name one: make PYTHON=python3.12" >&2; exit 2

requirements/py%.lock:
	@echo "Cannot make the environment: '$(PYTHON)' is not Python 3.11, 3.12 or 3.13. Install one, or name it: make PYTHON=python3.12" >&2; exit 2

demo: $(STAMP) ## Fill an embedded ClickHouse, export it through Spark, read it back
	$(BIN)/mergeberg demo --directory demo

clean-demo: ## Remove what the demo made
	rm -rf demo

check: lint jar ## Lint and the fast tests: before every commit
	$(PYTEST) -m 'not spark and not slow'

test: lint jar $(READERS_STAMP) $(CONNECT_STAMP) $(ARCHIVE_STAMP) $(SERVERS_STAMP) services ## Everything: lint, then all tests, the fast ones first, three at once
	$(PYTEST) $(AT_ONCE)

readers: $(STAMP) $(READERS_STAMP) $(JARS_STAMP) services $(if $(filter record over-s3,$(ARGS)),$(TRINO_STAMP)) ## Ask every reading engine; ARGS=over-s3 asks all of it over S3, Trino too, ARGS=record writes it down
	$(if $(ARGS),$(BIN)/python -m tests.readers $(ARGS),$(PYTEST) tests/readers)

servers: $(SERVERS_STAMP) ## Get the servers that tests start

# Without a stamp: they lie outside, for every working tree, and a look costs a tenth of a second.
services: $(STAMP) ## Build and install the servers that tests start, once for a machine
	$(BIN)/python -m tests.services.go_programs
	$(BIN)/python -m tests.services.node_programs

soak: $(STAMP) $(ARCHIVE_STAMP) $(SERVERS_STAMP) $(TRINO_STAMP) services ## Hours: the tests that `make test` leaves, generated tables, crashes, competition, chaos, bad networks (as root), kills, readers over S3, the older Spark and the model; ARGS="--tables 500 --seed 7"
	$(PYTEST) --soak $(AT_ONCE)
	$(BIN)/python -m tests.properties $(ARGS)
	$(BIN)/python -m tests.properties --tables 500 --way arrow
	$(BIN)/python -m tests.properties --tables 500 --way native
	$(BIN)/python -m tests.enumeration && $(BIN)/python -m tests.enumeration.real
	$(BIN)/python -m tests.enumeration --far
	$(BIN)/python -m tests.competition
	$(BIN)/python -m tests.chaos --minutes 10
	$(BIN)/python -m tests.chaos --minutes 10 --far
	$(BIN)/python -m tests.partition --minutes 10
	$(BIN)/python -m tests.partition --minutes 10 --packets
	$(BIN)/python -m tests.big --kills 10
	$(BIN)/python -m tests.readers over-s3
	$(BIN)/python -m tests.other_spark
	$(BIN)/python -m tests.model

model: $(STAMP) ## Ask the model of the commit protocol every question (half an hour); ARGS="ok-move --trace"
	$(BIN)/python -m tests.model $(ARGS)

big: $(STAMP) ## Export 20 million rows and compare every value (minutes; 10 GB of disk)
	$(BIN)/python -m tests.big $(ARGS)

bench: $(STAMP) ## Measure an export against ClickHouse's own Parquet INSERT
	$(BIN)/python -m tests.bench $(ARGS)

lint: $(STAMP) ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## Resolve requirements/ anew for this PYTHON (all of them: see CONTRIBUTING.md)
	$(PYTHON) requirements/lock.py

lock-readers: ## Resolve the environments of the other readers, a Connect client, the older Spark, Go and Node anew
	$(PYTHON) requirements/lock.py readers
	$(PYTHON) requirements/lock.py connect
	$(PYTHON) requirements/lock.py services
	$(PYTHON) requirements/lock.py node
	$(PYTHON) requirements/lock.py older-spark

clean: clean-demo ## Remove everything that can be made again
	rm -rf $(VENV) $(READERS) $(SERVERS) .model dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(JAR)
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
