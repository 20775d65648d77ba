# Everything a developer or CI does, one target each. `make` alone lists them.
# Needs make and Python 3.11, 3.12 or 3.13; another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])' 2>/dev/null)
SUPPORTED := 311 312 313
LOCK := requirements/dev.lock
BUILD_LOCK := requirements/build/build.lock
INSTALLER_LOCK := requirements/installer/installer.lock
# One stamp per Python, so that another PYTHON makes the environment anew. The environment has first
# what installs all others, then its packages, then mergeberg itself with its jar.
INSTALLER := $(VENV)/.installer-py$(VERSION)
PACKAGES := $(VENV)/.packages-py$(VERSION)
STAMP := $(VENV)/.ready-py$(VERSION)
INSTALL := $(BIN)/python requirements/packages.py install
# The readers that cannot be in our environment; the jars for tests are beside them.
READERS := .readers
READERS_LOCK := requirements/readers/readers.lock
READERS_STAMP := $(READERS)/.ready-py$(VERSION)
TRINO_STAMP := $(READERS)/.trino
# A Spark Connect client, which cannot be installed beside PySpark.
CONNECT_LOCK := requirements/connect/connect.lock
CONNECT_STAMP := $(READERS)/.connect-py$(VERSION)
JARS_STAMP := $(READERS)/.jars
# The jars of servers; a stamp has the name of the module that fetches them.
REST_STAMP := $(READERS)/.rest_jars
S3PROXY_STAMP := $(READERS)/.s3proxy_jar
HDFS_STAMP := $(READERS)/.hdfs_jars
# The classes of the tests' Sparks, so that each starts in half the time.
ARCHIVE_STAMP := $(READERS)/.classes
# The servers that tests start, out of Debian's packages and unpacked below here.
SERVERS := .servers
SERVERS_STAMP := $(SERVERS)/.ready

JAR := spark_ext/jvm/mergeberg-spark.jar

CODE := $(wildcard mergeberg tableformat catalog spark_ext conformance) tests requirements
PYTEST := $(BIN)/python -m pytest
# A file's tests stay together and in the order of tests/conftest.py; a test that ends its process is
# begun once more at most. Three, because two leave a fifth of two cores idle: tests wait for others.
AT_ONCE := --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 1

# A set-up fetches side by side what it fetches: half of its time is waiting for the network. The make
# of macOS (3.81) mixes their output; a make that was given --jobs keeps its number.
SIDE_BY_SIDE = --no-print-directory VERSION=$(VERSION) \
  $(if $(findstring --jobserver,$(MAKEFLAGS)),,--jobs=4) $(if $(filter output-sync,$(.FEATURES)),--output-sync)
BEGUN := $(shell date +%s)

# Some containers forbid it for the sake of small images. Then each of the hundreds of processes that
# tests start compiles every module that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv jar demo clean-demo check test test-all durations readers servers services soak mutation model big bench lint format lock clean
.PHONY: set-up-check set-up-test set-up-test-all set-up-soak

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with exactly the versions of requirements/

# After a change of a lock everything is made anew, so that no package of before is left: from uv's
# cache that takes seconds.
$(INSTALLER): $(INSTALLER_LOCK) $(BUILD_LOCK) $(LOCK)
	@$(if $(VERSION),,echo "Cannot make the environment: there is no Python named '$(PYTHON)'. Install Python 3.11, 3.12 or 3.13, or name one: make PYTHON=python3.12" >&2; exit 2)
	@$(if $(filter $(SUPPORTED),$(VERSION)),,echo "Cannot make the environment: '$(PYTHON)' is not Python 3.11, 3.12 or 3.13. Install one, or name it: make PYTHON=python3.12" >&2; exit 2)
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

$(PACKAGES): $(INSTALLER)
	$(INSTALL) $(LOCK) $(VENV)
	touch $@

$(STAMP): $(PACKAGES) pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation --editable .
	touch $@

$(READERS_STAMP): $(READERS_LOCK) | $(INSTALLER)
	rm -rf $(READERS)/venv $(READERS)/.ready-*
	$(INSTALL) $< $(READERS)/venv
	touch $@

# Half a gigabyte, for `make soak` alone.
$(TRINO_STAMP): tests/services/trino_files.py | $(PACKAGES) $(READERS_STAMP)
	$(BIN)/python -m tests.services.trino_files
	touch $@

$(CONNECT_STAMP): $(CONNECT_LOCK) | $(INSTALLER)
	rm -rf $(READERS)/connect $(READERS)/.connect-*
	$(INSTALL) $< $(READERS)/connect
	touch $@

# Without a list of files: columns and defaults from anywhere in our Python are in the jar. A digest of
# what it is made of tells whether it is current, in two seconds.
jar: $(STAMP) ## Make the Java side of Spark SQL anew, when something in it has changed
	$(BIN)/python -m spark_ext.jvm.build

# Before the tests, because two processes must not fetch into one directory at once.
$(JARS_STAMP): tests/support/iceberg_runtime.py spark_ext/engine/jars.py | $(PACKAGES)
	$(BIN)/python -m tests.support.iceberg_runtime
	touch $@

$(REST_STAMP) $(S3PROXY_STAMP) $(HDFS_STAMP): $(READERS)/.%: tests/services/%.py | $(PACKAGES)
	$(BIN)/python -m tests.services.$*
	touch $@

$(ARCHIVE_STAMP): tests/services/class_archive.py $(JARS_STAMP) $(PACKAGES)
	$(BIN)/python -m tests.services.class_archive
	touch $@

$(SERVERS_STAMP): tests/services/debian_packages.py | $(INSTALLER)
	$(BIN)/python -m tests.services.debian_packages $(SERVERS)/clickhouse-18.16 clickhouse-server
	touch $@

demo: $(STAMP) ## Fill an embedded ClickHouse, export it through Spark, read it back
	$(BIN)/mergeberg demo --directory demo

clean-demo: ## Remove what the demo made
	rm -rf demo

# What each tier needs, and no more.
OF_TEST := $(ARCHIVE_STAMP) $(READERS_STAMP) $(REST_STAMP) $(S3PROXY_STAMP) jar
OF_TEST_ALL := $(OF_TEST) services $(CONNECT_STAMP) $(HDFS_STAMP) $(SERVERS_STAMP)
set-up-check: jar ## Set up what `make check` needs, and so for the others: set-up-test, set-up-test-all, set-up-soak
set-up-test: $(OF_TEST)
set-up-test-all: $(OF_TEST_ALL)
set-up-soak: $(OF_TEST_ALL) $(TRINO_STAMP)
set-up-check set-up-test set-up-test-all set-up-soak:
	@echo "set-up: $$(($$(date +%s) - $(BEGUN))) s"

# mypy takes a minute the first time, while a set-up waits for the network.
check: ## Lint and the fast tests: before every commit
	@$(MAKE) $(SIDE_BY_SIDE) set-up-check lint
	$(PYTEST) $(AT_ONCE) --tier check --durations 10 --durations-min 0.5

test: ## Lint, then the tests that show every part at work, three at once: what CI runs
	@$(MAKE) $(SIDE_BY_SIDE) set-up-test lint
	$(PYTEST) $(AT_ONCE) --tier test

test-all: ## Lint, then all tests but those of `make soak`: servers, networks, crashes at every step
	@$(MAKE) $(SIDE_BY_SIDE) set-up-test-all lint
	$(PYTEST) $(AT_ONCE) --tier all

durations: ## Run make test-all, and write down what each test costs: tests/durations.json decides the tiers
	@$(MAKE) $(SIDE_BY_SIDE) set-up-test-all
	$(PYTEST) $(AT_ONCE) --tier all --measure $(READERS)/measured.json
	$(BIN)/python -m tests.support.durations $(READERS)/measured.json

readers: $(STAMP) $(READERS_STAMP) $(JARS_STAMP) services $(if $(filter record over-s3,$(ARGS)),$(TRINO_STAMP)) ## Ask every reading engine; ARGS=over-s3 asks all of it over S3, Trino too, ARGS=record writes it down
	$(if $(ARGS),$(BIN)/python -m tests.readers $(ARGS),$(PYTEST) tests/readers)

servers: $(SERVERS_STAMP) ## Get the servers that tests start

# Without a stamp: they lie outside, for every working tree, and a look costs a tenth of a second.
services: $(PACKAGES) ## Build and install the servers that tests start, once for a machine
	$(BIN)/python -m tests.services.go_programs
	$(BIN)/python -m tests.services.node_programs

soak: ## Hours: the tests that `make test-all` leaves, generated tables, crashes, competition, chaos, bad networks (as root), kills, readers over S3, the older Spark and the model; ARGS="--tables 500 --seed 7"
	@$(MAKE) $(SIDE_BY_SIDE) set-up-soak
	$(PYTEST) $(AT_ONCE) --tier soak
	$(BIN)/python -m tests.properties $(ARGS)
	$(BIN)/python -m tests.properties --tables 500 --way arrow
	$(BIN)/python -m tests.properties --tables 500 --way native
	$(BIN)/python -m tests.enumeration && $(BIN)/python -m tests.enumeration.real
	$(BIN)/python -m tests.enumeration --far
	$(BIN)/python -m tests.support.competition
	$(BIN)/python -m tests.chaos --minutes 10
	$(BIN)/python -m tests.chaos --minutes 10 --far
	$(BIN)/python -m tests.partition --minutes 10
	$(BIN)/python -m tests.partition --minutes 10 --packets
	$(BIN)/python -m tests.big --kills 10
	$(BIN)/python -m tests.readers over-s3
	$(BIN)/python -m tests.support.other_spark
	$(BIN)/python -m tests.model

mutation: set-up-test-all ## Mutate the code behind each requirement, and name those whose tests stay green (hours); ARGS="--ids P-0 --mutants 3"
	test -d $(READERS)/reach || $(BIN)/python -m tests.mutation --reach
	$(BIN)/python -m tests.mutation $(ARGS)

model: $(STAMP) ## Ask the model of the commit protocol every question (half an hour); ARGS="ok-move --trace"
	$(BIN)/python -m tests.model $(ARGS)

big: $(STAMP) ## Export 20 million rows and compare every value (minutes; 10 GB of disk)
	$(BIN)/python -m tests.big $(ARGS)

bench: $(STAMP) ## Measure an export against ClickHouse's own Parquet INSERT
	$(BIN)/python -m tests.bench $(ARGS)

lint: $(PACKAGES) ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-cache

format: $(PACKAGES) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(INSTALLER) ## Resolve requirements/ anew; ARGS="readers connect" resolves these and not our own environment
	$(BIN)/python requirements/packages.py lock $(or $(ARGS),dev)

clean: clean-demo ## Remove everything that can be made again
	rm -rf $(VENV) $(READERS) $(SERVERS) .model dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(JAR)
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
