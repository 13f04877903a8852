# Two commands: `make demo` shows the service at work, `make test` proves it.
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

.PHONY: demo test lint bench docs stack packages clean

demo: $(VENV)/installed packages
	$(BIN)/python -m tests.demo $(if $(FABRIC),--fabric "$(FABRIC)") $(if $(ACCEPT),--accept "$(ACCEPT)") $(if $(JSON),--json "$(JSON)") $(if $(HTML),--html "$(HTML)")

test: $(VENV)/tools packages
	$(BIN)/tox run -e py3,research,functional,nova,keystone,ironic

lint: $(VENV)/tools
	$(BIN)/tox run -e lint

bench docs: $(VENV)/tools
	$(BIN)/tox run -e $@

stack: PROFILE = stack
stack: $(VENV)/tools packages
	$(BIN)/tox run -e stack --notest
	.tox/stack/bin/python -m tests.stack $(if $(KEEP),--keep) $(if $(JSON),--json "$(JSON)")

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

clean:
	rm -rf $(VENV) .tox build dist *.egg-info demo stack-logs
