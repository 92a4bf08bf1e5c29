# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# torch is named first and pinned by the constraints, so that nothing else decides which build is fetched
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(shell grep '^torch==' constraints.txt)

.PHONY: demo test check bench docs clean

demo: .venv/run
	@$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/dev
	$(BIN)/python bench/train_step.py
	$(BIN)/python bench/train_loop.py
	$(BIN)/python bench/long_texts.py
	$(BIN)/python bench/attention.py
	$(BIN)/python bench/load.py

docs: .venv/dev
	$(BIN)/python docs/figures.py
	$(BIN)/python -m pytest tests/docs

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/run: pyproject.toml constraints.txt | .venv/bin/pip
	$(PIP) -e ".[fast]"
	@touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/bin/pip
	$(PIP) -e '.[dev]'
	@touch $@ .venv/run

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
