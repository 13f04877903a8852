# Two commands: `make demo` shows the service at work, `make test` proves it. `make quick` tells of
# mistakes within a minute.
# `make stack` starts everything that an OpenStack cloud consists of around it (KEEP=1: and stays).
# Everything they need beyond Debian's git, make, python3 and python3-venv is set up here.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FABRIC ?=
ACCEPT ?=
JSON ?=
HTML ?=
KEEP ?=
PROFILE = test
ENVIRONMENTS ?= py3
COVERAGE := $(CURDIR)/.tox/coverage
QUICK := .tox/quick/bin
# The newest of the other Pythons of the metadata that are here: all of them would take too long. Those
# of pyenv answer to their names only in their own directories.
PLACES = $(wildcard $(shell pyenv root 2>/dev/null)/versions/3.*/bin) /usr/local/bin /usr/bin
PYTHONS = $(wildcard $(foreach minor,11 12 13 14,$(addsuffix /python3.$(minor),$(PLACES))))
OTHER_PYTHONS = $(lastword $(sort $(filter-out %/$(notdir $(realpath $(BIN)/python)),$(PYTHONS))))
empty :=
comma := ,

.PHONY: demo quick style test test-all coverage lint bench docs stack deb image packages clean

demo: $(VENV)/installed packages
	$(BIN)/python -m tests.demo $(if $(FABRIC),--fabric "$(FABRIC)") $(if $(ACCEPT),--accept "$(ACCEPT)") $(if $(JSON),--json "$(JSON)") $(if $(HTML),--html "$(HTML)")

# All unit tests; the main roads through the real OpenSM, Nova, Keystone and each database.
test: $(VENV)/tools packages
	$(BIN)/tox run --fail-fast -e py3
	PYTEST_ADDOPTS="-m road" $(BIN)/tox run --fail-fast -e functional,nova,keystone

# Everything else that each change must pass; fast units and demo on the newest other Python here.
test-all: $(VENV)/tools packages
	$(BIN)/tox run --fail-fast -e research
	$(if $(OTHER_PYTHONS),$(BIN)/tox run --fail-fast \
	    -e $(subst $(empty) $(empty),$(comma),$(sort $(subst python3.,py3,$(notdir $(OTHER_PYTHONS))))) \
	    --discover $(OTHER_PYTHONS))
	PYTEST_ADDOPTS="-m 'not road'" $(BIN)/tox run --fail-fast -e functional,nova,keystone,ironic

# One page of what tests run; ENVIRONMENTS="py3 functional nova keystone ironic" measures these.
coverage: $(VENV)/tools packages
	rm -rf $(COVERAGE)
	for one in $(ENVIRONMENTS); do \
	    COVERAGE_FILE=$(COVERAGE)/.coverage.$$one PYTEST_ADDOPTS="$$PYTEST_ADDOPTS --cov --cov-report=" \
	    $(BIN)/tox run -e $$one || exit 1; \
	done
	.tox/$(firstword $(ENVIRONMENTS))/bin/python -m tests.coverage $(COVERAGE)

# pre-commit runs this part of `make quick`.
style: $(VENV)/quick
	$(QUICK)/ruff check .
	$(QUICK)/ruff format --check .
	$(QUICK)/mypy
	PYTHONPATH=research $(QUICK)/lint-imports

quick: style
	PYTHONPYCACHEPREFIX=.tox/pycache $(QUICK)/pytest -q -n 2 -p tests.quick tests/unit

lint: $(VENV)/tools
	$(BIN)/tox run -e lint

bench docs: $(VENV)/tools
	$(BIN)/tox run -e $@

stack: PROFILE = stack
stack: $(VENV)/tools packages
	$(BIN)/tox run -e stack --notest
	.tox/stack/bin/python -m tests.stack $(if $(KEEP),--keep) $(if $(JSON),--json "$(JSON)")

# The Debian packages of this tree, in dist/.
deb: PROFILE = deb
deb: $(VENV)/tools packages
	PYTHON=$(CURDIR)/$(BIN)/python packaging/deb.sh

# An OCI image of the service from these packages, in dist/; needs root, as a new system is made in it.
image: PROFILE = deb
image: $(VENV)/tools packages
	PYTHON=$(CURDIR)/$(BIN)/python packaging/image.sh

# The simulator, the subnet manager and their tools, where we may install them.
packages: $(VENV)/tools
	@missing=$$($(BIN)/bindep -b $(PROFILE) || true); \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "not installed (no root): $$missing"; fi

$(VENV)/tools:
	@test -d $(VENV) || rm -f $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt tox bindep
	touch $@

$(VENV)/installed: $(VENV)/tools requirements.txt constraints.txt setup.cfg
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/quick: $(VENV)/tools tox.ini setup.cfg requirements.txt test-requirements.txt constraints.txt
	$(BIN)/tox run -q -e quick --notest
	touch $@

clean:
	rm -rf $(VENV) .tox build dist *.egg-info demo stack-logs
