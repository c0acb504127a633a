# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PAGE_TOOLS := server/node_modules/.package-lock.json
PAGE_TOOLS_IF_NPM := $(shell command -v npm >/dev/null && echo $(PAGE_TOOLS))
export HALVING_ROOT ?= $(CURDIR)/.halving
export DAGSTER_HOME ?= $(HALVING_ROOT)/dagster
export DAGSTER_DISABLE_TELEMETRY ?= 1
export PYTHONUNBUFFERED = 1
# Where `make serve` and `make dev` listen; another number is given on the command line, as in: make dev PORT=3005 DAGSTER_PORT=3004
PORT = 3001
DAGSTER_PORT = 3000
# Fast tests compute, and so does a half more of them than there are cores; slow ones wait for other processes.
ifeq ($(origin PYTEST_XDIST_AUTO_NUM_WORKERS),undefined)
test: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
test-slow: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3)
endif
# Property tests are tried on their full number of examples where time does not matter.
test-all test-slow: export PROPERTY_EXAMPLES = all
# Runs pytest, and what failed once more, alone.
RUN_TESTS = $(BIN)/python -m tests.run

.DEFAULT_GOAL := help
.PHONY: help install demo serve test test-smoke test-all test-slow test-cluster test-gpu steady check check-page vendor bench dev format migration screenshots clean

help: ## List these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create .venv and install everything, pinned

$(INSTALLED): pyproject.toml sdk/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; say which one: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): a few minutes the first time"
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e ./sdk -e '.[dev]'
	@touch $@

$(DAGSTER_HOME)/dagster.yaml: dagster.yaml
	@mkdir -p $(@D) && cp $< $@

demo: install $(DAGSTER_HOME)/dagster.yaml ## Run the main job on the digits data: snapshot, sweep, report, promotion
	$(BIN)/halving sweep sweeps/digits.yaml

serve: install ## Open the page with runs, sweeps and models on http://127.0.0.1:3001 (PORT=3005: on another port)
	$(BIN)/halving serve --port $(PORT)

# The page beside Dagster: Ctrl-C ends both, for the shell ends the page when Dagster has ended.
dev: install $(DAGSTER_HOME)/dagster.yaml ## Open Dagster's UI on http://127.0.0.1:3000 with the sensors running, and our page on port 3001 (PORT and DAGSTER_PORT: on others)
	@$(BIN)/halving serve --port $(PORT) --dagster-url http://127.0.0.1:$(DAGSTER_PORT) & page=$$!; \
	trap 'kill $$page 2>/dev/null; wait $$page' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	HALVING_PAGE_URL=http://127.0.0.1:$(PORT) $(BIN)/python -m pipelines.dagster_storage dev --workspace workspace.yaml --port $(DAGSTER_PORT)

test: install ## Run the fast tests, which need no server and no other process: 6 minutes
	$(RUN_TESTS) -m "not slow and not service"

test-smoke: install ## Run a test of each part that may stand under it: Postgres, S3, Redis, and the page in Chromium: 1 minute
	$(RUN_TESTS) -m "smoke and not slow" --numprocesses=2

test-slow: install $(PAGE_TOOLS_IF_NPM) ## Run the tests that wait for other processes, and all tests on Postgres, S3, Redis and in Chromium: 30 minutes
	$(RUN_TESTS) -m "slow or service" --ignore=tests/kubernetes --ignore=tests/gpu

# After the browser's tests: a pod that comes or goes breaks off what Chromium loads.
test-cluster: install ## Run the tests on the cluster that KUBECONFIG names: 20 minutes
	$(BIN)/pytest --numprocesses=2 --exitfirst tests/kubernetes

# The SDK, PyTorch and pytest suffice for them, so a machine with a GPU needs no more: python -m pytest tests/gpu
test-gpu: install ## Run the tests on this machine's GPU: 1 minute
	@$(BIN)/python -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "PyTorch sees no GPU here; the build in .venv is " + torch.__version__)'
	$(BIN)/pytest --numprocesses=0 tests/gpu

test-all: test test-slow test-cluster ## Run all tests, each property tried on its full number of examples: 60 minutes

steady: install ## Run the tests that TESTS names, twenty times beside a busy core: 20 times as long as they
	$(if $(TESTS),,$(error say which tests, as pytest takes them: make steady TESTS="tests/sdk/run -k seed"))
	@while :; do :; done & load=$$!; trap 'kill $$load' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	for round in $$(seq 20); do \
		echo "round $$round of 20"; $(BIN)/pytest --quiet --exitfirst --numprocesses=2 $(TESTS) || exit 1; \
	done

check: install check-page ## Run lint, format, types and import direction: 1 minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-page: ## Types of the page's modules (needs npm; without it they are not checked, which it says)
	@if command -v npm >/dev/null; then $(MAKE) --silent --no-print-directory $(PAGE_TOOLS) && server/node_modules/.bin/tsc --project server; \
	else echo "the types of the page's modules in server/static were NOT checked: npm is missing (apt-get install npm)" >&2; fi

$(PAGE_TOOLS): server/package.json server/package-lock.json
	npm --prefix server ci --no-audit --no-fund --loglevel=error
	@touch $@

vendor: $(PAGE_TOOLS) ## Copy the page's libraries from npm into server/static/vendor, and check their hashes
	$(PYTHON) server/vendor.py

format: install ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## Measure: log(), the store, recovery, curves, and the peers (each installed in .bench); writes docs/benchmarks.md and docs/scale.md
	$(BIN)/python -m benchmarks

migration: install ## Write a catalog migration for changed tables: make migration m="what changed"
	$(BIN)/python -m resources.catalog.migrate "$(m)"

screenshots: install $(DAGSTER_HOME)/dagster.yaml ## Take the pictures in docs/images again (needs chromium-headless-shell)
	$(BIN)/python -m docs.screenshots

clean: ## Remove the virtual environment and caches; your runs in .halving stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build
