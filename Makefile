# Everything runs in .venv, made from pinned versions; no other set-up is needed.
PYTHON ?= python3.11
ifeq ($(shell command -v $(PYTHON)),)
PYTHON := python3
endif
BIN := .venv/bin

.PHONY: demo test fuzz lint studies docs site clean

demo: .venv/ready          ## the main job on the embedded default, nothing to download
	$(BIN)/initio demo

test: .venv/ready          ## the whole test suite; its processes read what is compiled, its threads wait without spinning
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: .venv/ready          ## a million damaged inputs to every reader, or FUZZ=200000
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz

lint: .venv/ready          ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

studies: .venv/ready       ## measured claims: ratios, memory, counts
	$(BIN)/python -m studies

docs: .venv/ready          ## rewrite the generated pages, then build the site into site/
	$(BIN)/python -m initio.cli.reference > docs/cli.md
	$(BIN)/python -m initio.cli.completion > src/initio/cli/parts.json
	$(BIN)/initio show darts_v2 --out docs/images/darts_v2.svg
	$(MAKE) site

site: .venv/ready          ## the site alone; a warning or a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
