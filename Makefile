# Two commands for a newcomer: `make run` and `make test`. Both need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test test-all lint docs bench evidence faults clean

# A stamp is touched only after its install succeeded, so an interrupted install is simply done again.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "symbnn needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make with PYTHON=python3.11")'
	@echo "Installing symbnn into $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable ".[studies]"
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	@echo "Installing the test group into $(VENV) (once)"
	@$(PIP_INSTALL) --editable ".[test]"
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	@echo "Installing the docs group into $(VENV) (once)"
	@$(PIP_INSTALL) --editable ".[docs]"
	@touch $@

run: $(VENV)/installed
	$(BIN)/python -m experiments.compact_posterior digits

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Large buffers in large pages, kept for the next one: a quarter of the tests' time was the system's, which
# filled pages with zeros. Other C libraries than glibc ignore it.
LARGE_PAGES := glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=4294967296
test test-all: export GLIBC_TUNABLES := $(LARGE_PAGES)

# Tests of a file share what they compile, so a file stays on one worker.
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 10

test-all: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 20 -m "slow or not slow"

# The site, into build/site. Tutorials are run again only if they or the library have changed.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/installed-test
	$(BIN)/python -m tests.bench

evidence: $(VENV)/installed-test
	$(BIN)/python -m tests.evidence

faults: $(VENV)/installed-test
	$(BIN)/python -m tests.faults

clean:
	rm -rf $(VENV) runs build .pytest_cache .mypy_cache .ruff_cache
