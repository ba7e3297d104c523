# Every task of the project. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install run demo test test-all test-model model clients docs faults fuzz check static spec ledger bench bench-peers format lock dist sbom clean

# Where it is set, each of a hundred processes would compile the program, and three the tests, again.
unexport PYTHONDONTWRITEBYTECODE

# The newest interpreter that is new enough; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
# Tests wait for sockets and disks a third of their time: three processes for two cores.
WORKERS ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
PARALLEL = -n $(WORKERS) --dist loadfile
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# A stamp is newer than the lock file it was made from, so that the second run installs nothing.
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
FUZZ := .venv-fuzz
FUZZ_STAMP := $(FUZZ)/.installed

help: ## List the tasks
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: $(DEV_STAMP) ## Make .venv with everything needed to develop

run: $(RUN_STAMP) ## Start the proxy on 127.0.0.1:8000, with the demo behind it unless an upstream is set
	@$(BIN)/palimpsest db migrate
	@exec $(BIN)/palimpsest serve

demo: $(RUN_STAMP) ## Show a conversation being compacted, then stop
	@$(BIN)/python scripts/tour.py

test: $(DEV_STAMP) ## Run the quick tests: a few minutes, nothing else needed
	@$(BIN)/python -m pytest -q --quick $(PARALLEL)

test-all: $(DEV_STAMP) ## Run all tests but those with a real model or real clients (needs PostgreSQL, Chromium)
	@$(BIN)/python -m pytest -q --ignore=tests/realmodel --ignore=tests/clients $(PARALLEL)

test-model: model ## Run a long conversation with a real small model behind the proxy (minutes)
	@$(BIN)/python -m pytest -q tests/realmodel

model: $(DEV_STAMP) ## Fetch the small model and its server (211 MB, once)
	@$(BIN)/python -m tests.realmodel.fetch

clients: $(DEV_STAMP) ## Run real clients against the proxy (1.5 GB of them, installed once)
	@$(BIN)/python -m tests.clients

docs: $(DEV_STAMP) ## Build the documentation as a site, strictly (build/docs/site)
	@$(BIN)/python -m scripts.docs

check: static ## Format, lint, types, layers, ceilings, documentation
	@$(BIN)/python -m pytest -q tests/house

static: $(DEV_STAMP) ## All of check but the ceilings, which are among the tests
	@$(BIN)/ruff format --check --quiet app migrations tests benchmarks scripts
	@$(BIN)/ruff check --quiet app migrations tests benchmarks scripts
	@$(BIN)/mypy --strict app tests benchmarks scripts
	@$(BIN)/lint-imports --no-logo

format: $(DEV_STAMP) ## Format the code and mend what can be mended
	@$(BIN)/ruff format --quiet app migrations tests benchmarks scripts
	@$(BIN)/ruff check --quiet --fix app migrations tests benchmarks scripts

faults: $(DEV_STAMP) ## Attack the proxy: other sites, other callers, raw bytes, broken disks; each with its control
	@$(BIN)/python -m pytest -q tests/faults tests/browser $(PARALLEL)

fuzz: $(FUZZ_STAMP) ## Try the endpoints under /api with odd requests (a minute or two)
	@$(BIN)/python -m tests.fuzz $(FUZZ)/bin/schemathesis

spec: $(DEV_STAMP) ## List the rows of the specification that no passing test proves; ROWS=H: the tests of those rows
	@$(BIN)/python -m tests.house.spec $(ROWS)

ledger: $(DEV_STAMP) ## Print the sums of the house beside their ceilings and goals
	@$(BIN)/python -m tests.house.ledger --calls

bench: $(DEV_STAMP) ## Measure what the proxy adds
	@$(BIN)/python -m benchmarks

bench-peers: $(DEV_STAMP) ## Measure conversations beside nginx, LiteLLM, Portkey and the lean reference (fifteen minutes)
	@$(BIN)/python -m benchmarks.peers
	@$(BIN)/python -m benchmarks conversations --peers --write

lock: $(DEV_STAMP) ## Resolve the dependencies again and write both lock files
	@$(BIN)/python -m piptools compile $(LOCK_OPTIONS) --extra postgres --extra mcp -o requirements.lock pyproject.toml
	@$(BIN)/python -m piptools compile $(LOCK_OPTIONS) --extra dev --extra postgres --extra mcp --extra otel -c requirements.lock \
		-o requirements-dev.lock pyproject.toml

# No index addresses: a lock file must install from any mirror.
LOCK_OPTIONS := --quiet --generate-hashes --allow-unsafe --strip-extras --build-deps-for editable \
	--no-header --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

dist: $(DEV_STAMP) ## Build the wheel and the source archive (dist/)
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist

sbom: $(DEV_STAMP) ## Write the bill of materials of the locked packages (build/sbom.cdx.json, CycloneDX)
	@$(BIN)/python -m scripts.sbom

clean: ## Remove what can be made again; the database in data/ stays
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache \
		.spec-results.json $(VENV) $(FUZZ) .venv-clients .clients-node .venv-node
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found. PYTHON=/path/to/python make ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(FUZZ_STAMP): tests/fuzz/requirements.txt | $(DEV_STAMP)
	@$(PYTHON) -m venv $(FUZZ)
	@$(FUZZ)/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@touch $@

$(DEV_STAMP): requirements-dev.lock $(RUN_STAMP)
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
