# Everything a clone needs. `make` alone lists the targets.
#
# Each target prepares .venv by itself from the lock files and reuses what is there.
# PYTHON=/path/to/python3 names the Python to make it with.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
BOOTSTRAP := sh scripts/bootstrap
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
SOURCES := src tests $(wildcard benchmarks fuzz) docs examples scripts scripts/lock \
    scripts/command_reference scripts/reference_pages scripts/diagrams scripts/demo_picture \
    scripts/notebook_picture

# The level of .venv that the whole test suite needs: run, dev or spark.
TEST_LEVEL := spark
# What `make check` runs of the tests: pure code, and what all code must keep to.
FAST_TESTS := tests/architecture tests/conformance tests/unit
# More for pytest, as in: make test ARGS='-k seal'
ARGS ?=

# The tests start hundreds of processes, and without its bytecode each would compile all of Lace.
export PYTHONDONTWRITEBYTECODE :=

STEP = @printf '\n==> %s\n'

.PHONY: help demo test test-slow check format bench docs conformance pages coverage mutate lock clean distclean venv

help: ## list the targets
	@printf 'Lace: agree on a set of records and converge on it.\n\n'
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile
	@printf '\nEach target sets up .venv when needed. PYTHON=… chooses the Python (3.11 or newer).\n'

demo: ## set up and show Lace at work, in a temporary folder
	@$(BOOTSTRAP) spark
	@$(BIN)/lace demo

test: ## run the tests, but for those that are too slow for every day
	@$(BOOTSTRAP) $(TEST_LEVEL)
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) -m 'not exhaustive' $(ARGS)

test-slow: ## run the tests that `make test` leaves out, and properties with fresh seeds
	@$(BOOTSTRAP) $(TEST_LEVEL)
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-slow} $(PYTEST) -m 'exhaustive or hypothesis or property' $(ARGS)

check: ## format, lint, types, import contract and the fast tests
	@$(BOOTSTRAP) dev
	$(STEP) 'format (ruff format)'
	@$(BIN)/ruff format --check $(SOURCES)
	$(STEP) 'lint (ruff check)'
	@$(BIN)/ruff check $(SOURCES)
	$(STEP) 'types (mypy, strict)'
	@$(BIN)/mypy
	$(STEP) 'types of the public API (basedpyright)'
	@$(BIN)/basedpyright
	$(STEP) 'import contract (import-linter)'
	@$(BIN)/lint-imports --no-logo
	$(STEP) 'fast tests (pytest)'
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) $(FAST_TESTS) \
	    -m 'not (slow or exhaustive or spark)' $(ARGS)

format: ## put all Python files into their standard form
	@$(BOOTSTRAP) dev
	@$(BIN)/ruff check --fix-only --quiet $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

bench: ## measure speed and size
	@$(BOOTSTRAP) spark
	@$(BIN)/python -m benchmarks $(ARGS)

docs: ## build the documentation into build/site
	@$(BOOTSTRAP) dev
	@rm -rf build/site
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo 'the pages are in build/site; open build/site/index.html'

conformance: ## write which tests check which requirement into docs/reference
	@$(BOOTSTRAP) $(TEST_LEVEL)
	@mkdir -p build
	@$(BIN)/python -m pytest --collect-only -qq --conformance-pages=docs/reference > /dev/null
	@echo 'the table is in docs/reference/conformance.md'

pages: conformance ## make again the pages and pictures that come from the program
	@$(BIN)/python scripts/command_reference > build/commands.md && mv build/commands.md docs/reference
	@$(BIN)/python scripts/reference_pages
	@$(BIN)/python scripts/diagrams
	@$(BIN)/python scripts/notebook_picture

coverage: ## run the tests and report the lines and branches they miss
	@$(BOOTSTRAP) $(TEST_LEVEL)
	@mkdir -p build/coverage
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) \
	    --cov=lace --cov-branch --cov-report=term --cov-report=html $(ARGS)

mutate: ## run the tests against small faults in the source, and write docs/reference/mutation.md
	@$(BOOTSTRAP) dev
	@$(BIN)/python -m tests.mutation $(ARGS)

lock: ## make the lock files again from pyproject.toml (UPGRADE=1 takes newer versions)
	@$(BOOTSTRAP) dev
	@$(BIN)/python scripts/lock $(if $(UPGRADE),--upgrade)

venv: ## only set up .venv, with the developer's tools
	@$(BOOTSTRAP) dev

clean: ## remove what was built (.venv stays)
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests $(wildcard benchmarks fuzz) examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf .venv .venv.lock
