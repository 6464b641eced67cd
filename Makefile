# What a newcomer needs: `make run` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help install pictures wheels run test nightly test-firefox test-client test-integrations test-vision lint audit format bench chaos course clean

VENV := .venv
comma := ,
# Both distributions, as pip installs them from a checkout.
EDITABLE := -e ./finishline -e
# With GPU=1 torch is of the index's own build, with torchvision and NVML beside it.
EXTRAS := worker$(if $(filter 1 true yes,$(GPU)),$(comma)vision$(comma)gpu)
CONSTRAINTS := $(if $(filter 1 true yes,$(GPU)),$(VENV)/constraints.txt,constraints.txt)
PROJECTS := pyproject.toml setup.py finishline/pyproject.toml
BIN := $(VENV)/bin
# What `make run` needs, and the tests as well.
RUN_STAMP := $(VENV)/.installed-to-run
STAMP := $(VENV)/.installed
# From wheels alone: nothing is compiled.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all:
VISION_VENV := .venv-vision
AUDIT_VENV := .venv-audit
INTEGRATIONS_VENV := .venv-integrations
CLIENT_VENV := .venv-client
AUDIT := $(AUDIT_VENV)/bin/pip-audit
ROOMS := finishline migrations reference_models server web worker
PROGRAMS := archives boards box device_clock dispatch fashion harness_cost overload packages \
	server_start statistics writes
VISION_STAMP := $(VISION_VENV)/.installed
# Threads of torch wait for each other in circles where processes share the processors. A test commits
# a dozen times, so its files lie in memory where there is such a folder. The sandbox, another user, reads them.
PYTEST = folder=$$(mktemp -d /dev/shm/finishline-XXXXXX 2>/dev/null || mktemp -d) && chmod 755 "$$folder" && trap 'rm -rf "$$folder"' EXIT && \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --basetemp="$$folder/tests"
SIDE_BY_SIDE = -n 3 --dist loadfile --no-loadscope-reorder --durations=10
# The first Python that is new enough; `make PYTHON=/path/to/python3.12 install` chooses another.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$name; break; }; done)

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## set up .venv with the command, a worker and the tests (GPU=1: torchvision, NVML)

$(RUN_STAMP): $(PROJECTS) constraints.txt
	@test -n "$(PYTHON)" || { echo "Finishline needs Python 3.11 or newer; install one, or name \
	it with make PYTHON=/path/to/python install." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is no \
	Python 3.11 or newer; name one with make PYTHON=/path/to/python install." >&2; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time: torch is large)."
	@"$(PYTHON)" -m venv $(VENV) || { echo "Python cannot make a virtual environment; on Debian \
	and Ubuntu install python3-venv." >&2; exit 1; }
	@grep -vE '^(torch|torchvision)==' constraints.txt > $(VENV)/constraints.txt
	$(PIP_INSTALL) -c $(CONSTRAINTS) $(EDITABLE) ".[$(EXTRAS)]"
	@touch $@

$(STAMP): $(RUN_STAMP)
	$(PIP_INSTALL) -c $(CONSTRAINTS) -e ".[$(EXTRAS),test]"
	@touch $@

wheels: $(STAMP)  ## build both distributions, wheels into dist/
	@rm -rf dist build finishline/build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir dist ./finishline .
	@rm -rf build finishline/build

run: $(RUN_STAMP)  ## start everything, run the demo, serve (ONCE=1: stop after the verdict)
	@$(BIN)/finishline up --demo $(if $(filter 1 true yes,$(ONCE)),--once)

test: $(STAMP)  ## run the tests of every change (ARGS="tests/cli -k sse" for some of them)
	@$(PYTEST) $(if $(ARGS),$(ARGS),$(SIDE_BY_SIDE))

nightly: $(STAMP)  ## run the tests of every night: processes, chaos, wheels, PostgreSQL, Firefox
	@$(PYTEST) -m nightly $(if $(ARGS),$(ARGS),$(SIDE_BY_SIDE))

test-firefox: $(STAMP)  ## walk the main pages in a headless Firefox (firefox-esr, or FINISHLINE_FIREFOX)
	@$(BIN)/python -m pytest -m nightly tests/server/browser/test_firefox.py $(ARGS)

# torchvision must be of the same build as torch, so the pair has an environment of its own.
$(VISION_STAMP): $(PROJECTS) | $(STAMP)
	@echo "Setting up $(VISION_VENV) (several GB the first time: torch with its CUDA libraries)."
	@"$(PYTHON)" -m venv $(VISION_VENV)
	$(VISION_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		$$(grep -oE '"torch(vision)?>=[^"]*"' pyproject.toml | sort -u | tr -d '"')
	$(VISION_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		$(EDITABLE) ".[vision]" "pytest>=9,<10" "pytest-timeout>=2.4,<3" "pytest-xdist>=3.8,<4"
	@touch $(VISION_STAMP)

test-vision: $(VISION_STAMP)  ## run the tests of the ImageNet reference, which need torchvision
	$(VISION_VENV)/bin/python -m pytest tests/reference_models/vision $(ARGS)

# Beside the packages of .venv, which torch is of.
$(INTEGRATIONS_VENV)/.installed: tests/integrations/requirements.txt | $(STAMP)
	@$(BIN)/python -m venv $(INTEGRATIONS_VENV)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		"$$($(INTEGRATIONS_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/packages.pth"
	$(INTEGRATIONS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		-r tests/integrations/requirements.txt
	@touch $@

test-integrations: $(INTEGRATIONS_VENV)/.installed  ## run the callbacks in Lightning and Transformers
	$(INTEGRATIONS_VENV)/bin/python -m pytest tests/integrations $(ARGS)

test-client: $(STAMP)  ## make a client by openapi-python-client, and submit with it
	@test -x $(CLIENT_VENV)/bin/openapi-python-client || { $(BIN)/python -m venv $(CLIENT_VENV) && \
	$(CLIENT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		"openapi-python-client>=0.29.1,<0.30"; }
	FINISHLINE_CLIENT_GENERATOR=$(CURDIR)/$(CLIENT_VENV)/bin/openapi-python-client \
		$(BIN)/python -m pytest -m "" tests/server/browser/test_generated_client.py $(ARGS)

lint: $(STAMP)  ## style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(STAMP)  ## vulnerabilities: pinned packages (needs the network), and our code once more by bandit
	@test -x $(AUDIT) || { "$(PYTHON)" -m venv $(AUDIT_VENV) && \
	$(AUDIT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.10,<3"; }
	$(AUDIT) --requirement constraints.txt --no-deps --strict
	$(BIN)/bandit --quiet --recursive --severity-level high $(ROOMS)

format: $(STAMP)  ## write the code as `make lint` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## measure what the server and the worker cost, and print one table
	@$(BIN)/python -m perf.harness $(PROGRAMS)

chaos: $(STAMP)  ## 200 faults on 60 verifications with real training, 15 of packages: all must end well
	FINISHLINE_CHAOS_FAULTS=200 FINISHLINE_CHAOS_VERIFICATIONS=60 FINISHLINE_CHAOS_PACKAGES=15 \
		FINISHLINE_CHAOS_WORKERS=4 FINISHLINE_CHAOS_REFERENCE=digits \
		$(BIN)/python -m pytest -m nightly tests/chaos $(ARGS)

course: $(STAMP)  ## 200 students on one box: 400 packages, of which 40 cheat (ARGS="--students 20 --cheats 30")
	$(BIN)/python -m tests.course.walk $(ARGS)

pictures: $(STAMP)  ## renew the README's pictures from a server (URL=http://...) with demo and archives
	$(BIN)/python -m tests.support.pictures $(URL)

clean:  ## remove the environments and caches; var/ with your submissions stays
	rm -rf $(VENV) $(VISION_VENV) $(AUDIT_VENV) $(INTEGRATIONS_VENV) $(CLIENT_VENV) build dist *.egg-info finishline/build finishline/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
