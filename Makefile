# `make demo` runs the product, `make test` checks it. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

.PHONY: demo test lock debian image sbom
demo: .venv/installed
	$(BIN)/autoscaler demo

test: .venv/installed .parts/installed debian
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile

# The tests ask a real Prometheus what it makes of the same data, and set the clock of a real process.
debian:
	command -v prometheus >/dev/null && ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 \
		|| { apt-get -qq update && apt-get -qq install -y libfaketime prometheus; }

# Needs Docker. PYTHON_IMAGE=...@sha256:... takes another base.
image:
	docker build --file deploy/Dockerfile --tag autoscaler:$(VERSION) --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$$(git rev-parse HEAD) $(if $(PYTHON_IMAGE),--build-arg PYTHON_IMAGE=$(PYTHON_IMAGE)) .

# What the image contains of Python packages, with their hashes: CycloneDX.
sbom: .parts/installed
	mkdir -p dist
	.parts/bin/cyclonedx-py requirements deploy/locks/run.lock --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.cdx.json

# The exact versions, pinned by hash, are the lock's; nothing is built from unpinned parts.
.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

.parts/installed: deploy/parts.lock
	$(PYTHON) -m venv .parts
	.parts/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/parts.lock
	touch $@

# One lock for development and tests; from it, what goes into the image and what the image is built with.
COMPILE := $(BIN)/uv pip compile --generate-hashes --no-emit-index-url --no-header --no-annotate \
	--python-version 3.11 --python-platform x86_64-manylinux_2_28 --constraints requirements.lock
lock: .venv/installed
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --group dev --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --universal --upgrade --output-file requirements.lock
	$(COMPILE) pyproject.toml --output-file deploy/locks/run.lock
	$(COMPILE) --group build --output-file deploy/locks/build.lock
	$(COMPILE) --group parts --output-file deploy/parts.lock
