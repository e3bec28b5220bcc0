# Everything here runs from a fresh clone with Python 3.10 or later and make, nothing else.
#
#   PYTHON=...   the interpreter to start from (python3)
#   VENV=...     where the tests' environment lies (.venv)
#   ARGS=...     more arguments for pytest
#   FUZZ=...     seconds of `make torture` for each reader of foreign bytes (600)

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
FUZZ ?= 600

# The interpreter below an activated environment: the one that is active may be the one that is
# about to be made anew.
BASE := $(shell $(PYTHON) -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))' 2>/dev/null)
PY := $(VENV)/bin/python

# The environment is made anew when the project's metadata, the interpreter or the place of the
# checkout is another: all of that is in the name of the file that says it is ready.
KEY := $(shell { pwd; "$(BASE)" -c 'import sys; print(sys.base_prefix, sys.version)'; cat pyproject.toml; } 2>/dev/null | cksum | cut -d ' ' -f 1)
READY := $(VENV)/.ready-$(KEY)

# What a shell may carry that would send packages or imports elsewhere. Settings that say where
# packages come from (index, proxy, certificates, cache) stay.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
unexport PIP_DRY_RUN PIP_NO_BUILD_ISOLATION PIP_NO_DEPS PIP_PREFIX PIP_PYTHON PIP_REQUIRE_HASHES
unexport PIP_REQUIREMENT PIP_EDITABLE PIP_ROOT PIP_TARGET
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check-patches torture bench lint build docs clean python

help:
	@echo 'make demo      the whole story on a real vLLM 0.11.0, in an environment of its own'
	@echo 'make test      lint and the suite'
	@echo 'make test-all  the same and the long parts'
	@echo 'make torture   random diffs, stacks, kills and crowds, and the fuzzer; about an hour'
	@echo 'make check-patches  the built-in catalog, proven on every released wheel'
	@echo 'make bench     how long vllm-patch takes, beside python, git and patch'
	@echo 'make lint      ruff and mypy'
	@echo 'make build     sdist and wheel into dist/'
	@echo 'make docs      the pages of docs/ into build/docs; a warning is an error'
	@echo 'make clean     remove all that make has made'

demo: python
	@"$(BASE)" scripts/demo.py

bench: python
	@"$(BASE)" scripts/bench.py

test: lint
	"$(PY)" -m pytest -n auto --cov=vllm_patcher -m "not slow" $(ARGS)

test-all: lint
	"$(PY)" -m pytest -n auto --cov=vllm_patcher $(ARGS)

check-patches: $(READY)
	"$(PY)" -m vllm_patcher fit --check

torture: $(READY)
	"$(PY)" -m pip install --quiet --editable '.[fuzz]'
	VLLM_PATCHER_TORTURE=1 VLLM_PATCHER_EXPLORE=1 "$(PY)" -m pytest -n auto -m torture $(ARGS)
	for reader in diff manifest record receipt; do \
		"$(PY)" scripts/fuzz.py $$reader -max_total_time=$(FUZZ) || exit 1; \
	done

lint: $(READY)
	"$(PY)" -m ruff check src tests scripts patches
	"$(PY)" -m ruff format --check src tests scripts patches
	"$(PY)" -m mypy

build: $(READY)
	rm -rf dist
	"$(PY)" -m build

docs: $(READY)
	"$(PY)" -m mkdocs build --strict

clean:
	rm -rf build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests scripts patches -name __pycache__ -prune -exec rm -rf {} +
	if test -e "$(VENV)/.made-by-make"; then rm -rf "$(VENV)"; fi

$(READY): | python
	@rmdir "$(VENV)" 2>/dev/null || true
	@if test -e "$(VENV)" && ! test -e "$(VENV)/.made-by-make"; then \
		echo 'error: $(VENV) is there and make has not made it' >&2; \
		echo 'hint: remove it, or name another: make $(MAKECMDGOALS) VENV=.venv-test' >&2; \
		exit 1; \
	fi
	@rm -rf "$(VENV)"
	@mkdir -p "$(VENV)"
	@touch "$(VENV)/.made-by-make"
	"$(BASE)" -m venv "$(VENV)"
	"$(PY)" -m pip install --quiet --editable '.[test,lint]'
	@touch "$@"

python:
	@if ! test -x "$(BASE)"; then \
		echo 'error: $(PYTHON) is not there or does not start' >&2; \
		echo 'hint: install Python 3.10 or later, or: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi
	@if ! "$(BASE)" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then \
		echo "error: $(BASE) is $$("$(BASE)" -V 2>&1); 3.10 or later is needed" >&2; \
		echo 'hint: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi
	@if ! "$(BASE)" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "error: $(BASE) can't make environments: its venv or ensurepip is missing" >&2; \
		echo 'hint: on Debian and Ubuntu: apt-get install python3-venv' >&2; \
		exit 1; \
	fi
