# How is Tumira installed, run and checked? `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# For scripts/install.sh: a Python that was named replaces an environment made by another one.
export PYTHON
export PYTHON_NAMED := $(if $(filter file default undefined,$(origin PYTHON)),,yes)

.DEFAULT_GOAL := help
.PHONY: help install run test test-long bench bench-growth lint docs pins runtime peers train evaluate learning screenshots

help:
	@echo 'make run         start Tumira on http://127.0.0.1:8080 (installs what it needs first)'
	@echo 'make install     create .venv and install everything pinned'
	@echo 'make test        all that CI runs: lint, then the tests'
	@echo 'make test-long   the tests that take minutes, such as a fresh clone'
	@echo 'make bench       the benchmark'
	@echo 'make bench-growth  whether anything slows down with 20 million messages (25 GB of disk)'
	@echo 'make lint        format, lint, types, imports and generated files'
	@echo 'make docs        write the generated files anew'
	@echo 'make screenshots take the pictures of the README anew'
	@echo 'make train       learn the weights of the content check anew'
	@echo 'make evaluate    print how well the content check judges what it has not learnt from'
	@echo 'make pins        pin the dependencies anew (UPGRADE=1: to their latest versions)'
	@echo
	@echo 'PYTHON=python3.12 after any of them chooses another Python (3.11 or newer).'

install:
	@sh scripts/install.sh dev

runtime:
	@sh scripts/install.sh run

# exec, so that Ctrl-C and its exit code are those of Tumira and no shell stands in between.
run: runtime
	@exec $(BIN)/tumira serve

lint: install
	@echo 'Format …'
	@$(BIN)/ruff format --check .
	@echo 'Lint …'
	@$(BIN)/ruff check .
	@echo 'Types …'
	@$(BIN)/mypy
	@echo 'Imports …'
	@$(BIN)/lint-imports >$(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	@echo 'Generated files …'
	@test ! -e scripts/generate_docs.py || $(BIN)/python scripts/generate_docs.py --check

# Programs that some tests compare us with; a test whose peer is missing is skipped and says so.
peers:
	@sh scripts/peers.sh

# More files at a time than this machine may have cores: most of them wait for something most of the time. In the
# order of their folders, not the longest list first: those of units, which take no time, fill the gaps at the end.
# Code is compiled once for all processes that the tests start, also where the environment asks Python to write
# nothing beside it.
test: lint peers
	@echo 'Tests …'
	@exec env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/compiled \
		$(BIN)/python -m pytest -m 'not long' -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: install peers
	@exec $(BIN)/python -m pytest -m long $(ARGS)

bench: install
	@exec $(BIN)/python -m tests.load.bench $(ARGS)

bench-growth: install
	@exec $(BIN)/python -m tests.load.growth $(ARGS)

learning:
	@sh scripts/install.sh train

train: learning
	@exec $(BIN)/python -m scripts.train_screening

evaluate: learning
	@exec $(BIN)/python -m scripts.evaluate_screening

docs: install
	@exec $(BIN)/python scripts/generate_docs.py

screenshots: install peers
	@exec $(BIN)/python -m scripts.screenshots

pins:
	@sh scripts/pins.sh
