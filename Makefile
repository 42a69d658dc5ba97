PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test clean

demo: $(VENV)/.ready
	$(BIN)/onnxfde demo
	@echo "The command is $(BIN)/onnxfde"

test: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy onnxfde tests benchmarks
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -rs -n auto --maxprocesses 8 --dist worksteal --cov --cov-report=term-missing:skip-covered --cov-fail-under=95

clean:
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "onnxfde needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || \
	  { echo "$(PYTHON) has no venv; install it first (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(BIN)/python pyproject.toml
	$(BIN)/pip install -q -e .
	touch $@

$(VENV)/.ready-dev: $(BIN)/python pyproject.toml
	$(BIN)/pip install -q -e '.[dev]'
	touch $@ $(VENV)/.ready
