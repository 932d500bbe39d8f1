# The two commands of a newcomer are `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WASM := runtime_py/_wasm/volery-simd.wasm
WASM_SOURCES := $(shell find wasm -name '*.c' -o -name '*.h')

.PHONY: demo test lint format wasm clean
.DELETE_ON_ERROR:

$(VENV)/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/demo: $(VENV)/pip requirements/demo.txt pyproject.toml
	$(BIN)/python -m pip install --quiet -r requirements/demo.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/test: $(VENV)/demo requirements/test.txt
	$(BIN)/python -m pip install --quiet -r requirements/test.txt
	touch $@

$(WASM): $(VENV)/demo $(WASM_SOURCES)
	$(BIN)/toolchain build

wasm: $(WASM)
