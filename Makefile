# Two commands: `make run` and `make test`. Both make .venv from the lock in envs/ when it is missing or older.
# Where nvcc is installed, `make cuda` adds the CUDA kernels.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= 1
# pytest's and snakemake's own options: make test ARGS="-k gpu", make run ARGS="--config batch=20"
ARGS ?=
# a file of tests is one process's, and files come in the order of conftest.py: the slow ones first
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# a .venv that is there is used as it is, so a PYTHON that was asked for is looked at here
ifeq ($(origin PYTHON),command line)
  ifeq ($(shell command -v $(PYTHON)),)
    $(error there is no $(PYTHON); name a Python 3.11 or newer that you have: make PYTHON=python3 run)
  endif
  ifneq ($(wildcard $(VENV)/bin/python),)
    $(info note: $(VENV) is there and stays as it is; to make it again with $(PYTHON), delete it first)
  endif
endif

# uv is quicker where it is there; where it cannot (a mirror that only pip is told of), pip does it
define install
	@{ command -v uv > /dev/null && uv pip install --quiet --python $(BIN)/python --require-hashes -r $(1); } || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)
	@touch $@
endef

.PHONY: install run test unit cuda lint docs reference release-check clean help

help:
	@echo "make install  .venv from the lock, and nothing else; every other target does it too"
	@echo "make run    the whole study: snakemake --cores 1 all"
	@echo "make test   the tests (ARGS=--nightly: all; make unit: the quick ones, without Snakemake, compilers, fake boards)"
	@echo "make cuda   install cuBLAS and cuDNN into .venv (1.1 GB) and build the CUDA kernels; needs nvcc"
	@echo "make lint   ruff, snakefmt, mypy"
	@echo "make docs   docs/ as a site: site/index.html (make reference: write docs/reference/ from the code)"
	@echo "make release-check   build sdist and wheel, run the tutorial from them in a fresh environment"
	@echo "make clean  remove results, logs and Snakemake's notes (keeps .venv)"

install: $(VENV)/run.stamp

run: $(VENV)/run.stamp
	$(BIN)/snakemake --cores $(CORES) all $(ARGS)

test: $(VENV)/dev.stamp
	$(PYTEST) $(ARGS)

unit: $(VENV)/dev.stamp
	$(PYTEST) -o testpaths=tests -m "not workflow and not compiles and not boards and not slow" $(ARGS)

cuda: $(VENV)/cuda.stamp
	$(BIN)/kernel-dvfs build --cuda on $(ARGS)

# without snakemake --lint: it asks for a conda environment of each rule and for paths as f-strings with doubled braces,
# and it cannot be told which of its advice a workflow does not take
lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/mypy

# strict: a dead link or anchor, or a page that no menu names, is an error
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)

reference: $(VENV)/run.stamp
	$(BIN)/python docs/generate_reference.py

release-check: $(VENV)/run.stamp
	$(BIN)/python experiments/benchmarks/release_check.py $(ARGS)

clean:
	rm -rf results logs site .snakemake

$(VENV)/bin/python:
	@command -v $(PYTHON) > /dev/null || \
	  { echo "error: there is no $(PYTHON); name a Python 3.11 or newer that you have: make PYTHON=python3 run" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11; name another: make PYTHON=python3.12 run" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "error: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }

# The project as it lies here becomes importable: Snakemake finds its plugins among installed packages only. A .pth
# file, because `pip install -e` would fetch a build backend that no lock names.
$(BIN)/kernel-dvfs: Makefile | $(VENV)/bin/python
	@$(BIN)/python -c 'import os, sysconfig; site = sysconfig.get_path("purelib"); \
	  open(os.path.join(site, "kernel_dvfs.pth"), "w").write(os.path.relpath("workflow", site) + "\n")'
	@printf '#!/bin/sh\nexec "%s/python" -m kernel_dvfs "$$@"\n' "$(CURDIR)/$(BIN)" > $@ && chmod +x $@

# then the compiled core of plans of pipelines, found from every folder; where it cannot be built, a line says why
$(VENV)/run.stamp: envs/requirements.lock | $(VENV)/bin/python $(BIN)/kernel-dvfs
	@echo "installing the packages that envs/requirements.lock names: about a minute"
	$(call install,envs/requirements.lock)
	@echo "compiling the search for plans of pipelines: up to three minutes"
	@$(BIN)/kernel-dvfs build --pipeline auto --beside || \
	  echo "note: plans of pipelines are searched for in Python, more slowly and less well"

$(VENV)/dev.stamp: envs/dev.lock $(VENV)/run.stamp
	$(call install,envs/dev.lock)

$(VENV)/docs.stamp: envs/docs.lock $(VENV)/run.stamp
	$(call install,envs/docs.lock)

$(VENV)/cuda.stamp: envs/cuda.lock $(VENV)/run.stamp
	$(call install,envs/cuda.lock)
