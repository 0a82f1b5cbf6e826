# Every target sets up what it needs. `make` alone lists them.
PYTHON ?= python3
ARGS ?=

READY := .venv/.ready
# A worker that dies ends the run: xdist would wait for ever for the tests it gave to the worker's successor.
PYTEST := .venv/bin/pytest -n 3 --dist loadgroup --max-worker-restart 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-long bench lint format lock clean tools

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(READY)  ## make .venv with everything in it, and look for Java

demo: $(READY)  ## set up, then run the main job on data it makes itself
	.venv/bin/tailrace demo $(ARGS)

test: $(READY) tools  ## set up, then run the tests
	$(PYTEST) -m "not long" $(ARGS)

test-long: $(READY) tools  ## run the tests that take long
	HYPOTHESIS_PROFILE=long $(PYTEST) -m long $(ARGS)

bench: $(READY)  ## run every benchmark (ARGS=--quick for a short run)
	scripts/bench.sh $(ARGS)

lint: $(READY)  ## check style, format and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

format: $(READY)  ## format the code and fix what can be fixed safely
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

lock: $(READY)  ## renew requirements.lock from pyproject.toml
	scripts/lock.sh

clean:  ## remove everything that can be made again
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

tools:
	@scripts/setup-tools.sh

$(READY): pyproject.toml requirements.lock scripts/setup-venv.sh scripts/setup-java.sh
	@PYTHON="$(PYTHON)" scripts/setup-venv.sh
	@scripts/setup-java.sh
	@.venv/bin/python -m tailrace.spark.archive || echo "setup: no class-data archive, so Spark starts slower"
	@touch $@
