# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# torch is named first and pinned by the constraints, so that nothing else decides which build is fetched
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(shell grep '^torch==' constraints.txt)

.PHONY: demo test browser test-clients check bench docs clean

demo: .venv/run
	@$(BIN)/python examples/demo.py

test: check browser
	$(BIN)/python -m pytest -n 2 --dist worksteal

# the page is tested in a real browser: Debian's, where it may be installed; without one these tests are skipped
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	&& { apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium >/dev/null; }; } \
	|| echo "make test: THERE IS NO CHROMIUM HERE: the page's browser tests will be skipped (Debian: apt install chromium)"

# real clients of the server, each in an environment of its own; the first time they are fetched, which takes minutes
test-clients: .venv/dev
	$(BIN)/python -m pytest clients -o faulthandler_timeout=1000

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
