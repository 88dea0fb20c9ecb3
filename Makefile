# `make demo` runs the product, `make test` checks it. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lock prometheus
demo: .venv/installed
	$(BIN)/autoscaler demo

test: .venv/installed prometheus
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile

# The tests ask a real Prometheus what it makes of the same data.
prometheus:
	command -v prometheus >/dev/null || { apt-get -qq update && apt-get -qq install -y prometheus; }

# The exact versions, pinned by hash, are the lock's; nothing is built from unpinned parts.
.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock: .venv/installed
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --group dev --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --universal --upgrade --output-file requirements.lock
