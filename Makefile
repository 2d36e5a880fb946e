# Needs Python 3.11 or newer and make; everything else goes into .venv.

PYTHON ?= python3
WORKERS ?= 2
# Extra arguments for pytest, e.g. make test PYTEST_ARGS="-x -k gibbs".
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench

# Most of a test run is compilation: keep what was compiled for the next one, and leave the tests of a file to one
# worker as far as that keeps both busy.
CACHE := JAX_COMPILATION_CACHE_DIR="$(CURDIR)/.cache/jax" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
PYTEST := $(CACHE) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Small problems take longer to compile than to run. The long runs are compiled as users' programs are.
# XLA stops at a flag it does not know, so the flags are tried once and left out where this release has not got them.
XLA_QUICK := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
FLAGS := $(VENV)/.xla-flags
QUICK = JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="$$XLA_FLAGS $$(cat $(FLAGS))"

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint types imports unit laws bench docs format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(DEV) ## Create .venv with the library and the development tools

demo: $(CORE) ## Run the demonstration and write its report
	$(BIN)/unnorm demo --out demo-run
	@echo "The report is in demo-run/:"; find demo-run -name '*.html' | sort

test: lint types imports unit ## Everything that must pass: style, types, imports, tests

lint: $(DEV) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV) ## Check types
	$(BIN)/basedpyright --pythonpath $(BIN)/python

imports: $(DEV) ## Check that imports go one way
	$(BIN)/lint-imports

unit: $(DEV) $(FLAGS) ## Run the tests, without the long law runs
	$(QUICK) $(PYTEST) $(PYTEST_ARGS) tests

laws: $(DEV) ## Run every law, the long ones too
	$(PYTEST) -m "thorough or not thorough" $(PYTEST_ARGS) tests/laws

bench: $(BENCH) ## Run the benchmarks (installs PyTorch)
	$(BIN)/python -m benchmarks

docs: $(DEV) ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

format: $(DEV) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything these targets made
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .import_linter_cache site dist demo-run
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "unnorm needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(DEV): $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

$(FLAGS): $(DEV)
	@XLA_FLAGS="$(XLA_QUICK)" $(BIN)/python -c 'import jax; jax.devices()' 2>/dev/null && echo "$(XLA_QUICK)" > $@ || : > $@

$(BENCH): $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@touch $@
