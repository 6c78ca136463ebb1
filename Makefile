# Installs, runs and checks Tumira. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Code is compiled once for all processes that the tests start, also where the environment tells Python not to
# write compiled files.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/compiled $(BIN)/python -m pytest

# For scripts/install.sh: a Python named on the command line replaces an environment of another Python.
export PYTHON
export PYTHON_NAMED := $(if $(filter file default undefined,$(origin PYTHON)),,yes)

.DEFAULT_GOAL := help
.PHONY: help install run test pytest test-long proof bench bench-growth mutants lint checks types docs pins wheel deb test-pythons runtime peers prepare train evaluate learn-from learning screenshots catalogue

help:
	@echo 'make run         start Tumira on http://127.0.0.1:8080 (installs what it needs first)'
	@echo 'make install     create .venv and install the pinned packages'
	@echo 'make test        all checks: lint, then the tests'
	@echo 'make test-long   the tests that take minutes, such as a fresh clone'
	@echo 'make proof       a ten-minute slice of every proof, with a verdict (docs/proof.md)'
	@echo 'make test-pythons  install and try the package on every Python that is found, and read its pins'
	@echo 'make bench       the benchmark (ARGS=single: one section of it)'
	@echo 'make bench-growth  measure what slows down with 20 million messages (26 GB of disk)'
	@echo 'make mutants     put faults into the money and engine code; tests must catch 90 % (ARGS=--sample 300)'
	@echo 'make lint        format, lint, types, imports, wording, structure and generated files'
	@echo 'make docs        write the generated files'
	@echo 'make screenshots take the pictures of the README'
	@echo 'make catalogue   list the texts of all pages, for translators'
	@echo 'make train       train the content check'
	@echo 'make learn-from  add labelled texts to the corpus (FILE=texts.jsonl, of tumira refusal export)'
	@echo 'make evaluate    measure the content check on unseen messages, and write docs/content-policy.md'
	@echo 'make wheel       build the package into dist/'
	@echo 'make deb         build the Debian package into dist/, for the Debian that this runs on'
	@echo 'make pins        pin the dependencies (UPGRADE=1: to their latest versions)'
	@echo
	@echo 'PYTHON=python3.12 after any of them chooses another Python (3.11 or newer).'

install:
	@sh scripts/install.sh dev

runtime:
	@sh scripts/install.sh run

# exec, so that Tumira itself gets Ctrl-C and sets the exit code.
run: runtime
	@exec $(BIN)/tumira serve

lint: checks types

checks: install
	@echo 'Format …'
	@$(BIN)/ruff format --check .
	@echo 'Lint …'
	@$(BIN)/ruff check .
	@echo 'Imports …'
	@$(BIN)/lint-imports >$(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	@echo 'Wording …'
	@$(BIN)/python scripts/plain_english.py
	@echo 'Structure …'
	@$(BIN)/python scripts/structure.py
	@echo 'Generated files …'
	@test ! -e scripts/generate_docs.py || $(BIN)/python scripts/generate_docs.py --check

types: install
	@echo 'Types …'
	@nice -n 19 $(BIN)/mypy >$(VENV)/types.log || { cat $(VENV)/types.log; exit 1; }

# Foreign programs that some tests use; a test without its program is skipped with a message.
peers:
	@sh scripts/peers.sh

# What tests would wait for: packages of Node.js, and compiled tests. Each of the test processes would otherwise
# compile all of them; what cannot be compiled is reported by the tests.
prepare: install peers
	@$(BIN)/python -m tests.support.npm
	@$(PYTEST) --collect-only -q >/dev/null 2>&1 || true

# The types are checked while the first tests run.
test: install
	@$(MAKE) --no-print-directory -j2 checks prepare
	@$(MAKE) --no-print-directory -j2 types pytest

# More processes than cores, because most tests wait most of the time. Files run in the order of their folders.
# All have the lowest priority: otherwise what the product starts with a lower one, such as the check of a file,
# gets no processor beside the other tests.
pytest: install
	@echo 'Tests …'
	@exec nice -n 19 $(PYTEST) -m 'not long' -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

# Properties run here with many more examples.
test-long: prepare
	@sh scripts/peers.sh long
	@exec nice -n 19 $(PYTEST) -m 'long or hypothesis' $(ARGS)

# Models, simulation, a cluster under faults, mutants, and broken twins of each.
proof: install peers
	@exec env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/compiled \
		$(BIN)/python -m tests.proof $(ARGS)

# Part of the long tests: docs/platforms.md says what they try.
test-pythons: install
	@exec $(PYTEST) tests/install -m 'long or not long' $(ARGS)

wheel: runtime
	@$(BIN)/python -c 'from flit_core import buildapi as to; print(*("dist/" + build("dist") for build in (to.build_sdist, to.build_wheel)))'

deb: runtime
	@sh scripts/deb.sh

catalogue: install
	@$(BIN)/python scripts/catalogue.py $(VENV)/catalogue

bench: install
	@exec $(BIN)/python -m tests.load.bench $(ARGS)

bench-growth: install
	@exec $(BIN)/python -m tests.load.growth $(ARGS)

# Faults are put into the memory of forks; nothing in the checkout changes.
mutants: install
	@exec env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/compiled \
		$(BIN)/python -m tests.proof.mutants $(ARGS)

learning:
	@sh scripts/install.sh train

train: learning
	@exec $(BIN)/python -m scripts.train_screening

# Texts of `tumira refusal export`, once they are labelled: make learn-from FILE=texts.jsonl
learn-from: install
	@exec $(BIN)/python -m scripts.add_to_corpus $(FILE)

evaluate: learning
	@exec $(BIN)/python -m scripts.evaluate_screening

docs: install
	@exec $(BIN)/python scripts/generate_docs.py

screenshots: install peers
	@exec $(BIN)/python -m scripts.screenshots

pins:
	@sh scripts/pins.sh
