# Set-up and checks of autotune. `make help` lists the targets.
#
#   make install PYTHON=python3.12    a Python of your choice (3.11 or newer)
#   make test ARGS="-m 'not slow'"    arguments for pytest
#   make test ARGS=--exhaustive       more cases of each kind: more tiles, more ways of exporting
#   make test JOBS=4                  test files at the same time
#   make bench ARGS=--quick           arguments for every benchmark
#   make bench ARGS=--quick AT_ONCE=2 benchmarks at the same time, where their times do not count

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.autotune-installed
ARGS ?=
# Tests that run at the same time; those of one file never do.
JOBS ?= 2
# Benchmarks that run at the same time, each as if no other held this host: only where nobody may set its clocks.
AT_ONCE ?= 1
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3)
PACKAGES := build-essential cmake ninja-build python3-venv \
	ocl-icd-libopencl1 opencl-headers pocl-opencl-icd \
	g++-aarch64-linux-gnu qemu-user-static adb
# For the tests with emulated phones and boards, of pkg-config files and of hostile records; skipped without.
TEST_PACKAGES := mksh toybox pkg-config strace
TOOLS := g++ cmake ninja python3 aarch64-linux-gnu-g++ qemu-aarch64-static adb

.PHONY: help install system demo test test-all lint docs bench clean

help: ## List the targets
	@grep -hE '^[a-z]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  \1\t/' | expand -t 12

install: system $(STAMP) ## Install Debian packages, make .venv, build the OpenCL runtime
	@$(BIN)/python -c "from autotune.compiler.native import opencl_sidecar as s; s.ensure(print)"

# Debian packages that are missing; elsewhere only a list of tools to install by other means.
system:
	@if ! command -v apt-get > /dev/null; then
		for tool in $(TOOLS); do
			command -v "$$tool" > /dev/null || missing="$${missing:-} $$tool"
		done
		[ -z "$${missing:-}" ] || echo "no apt-get here; install these another way:$$missing" >&2
		exit 0
	fi
	for package in $(PACKAGES); do
		status="$$(dpkg-query -W -f '$${db:Status-Status}' "$$package" 2> /dev/null || true)"
		[ "$$status" = installed ] || missing="$${missing:-} $$package"
	done
	[ -n "$${missing:-}" ] || exit 0
	sudo=
	if [ "$$(id -u)" -ne 0 ]; then
		sudo="sudo"
		command -v sudo > /dev/null \
			|| { echo "run as root: apt-get install$$missing" >&2; exit 1; }
	fi
	echo "installing Debian packages:$$missing"
	$$sudo apt-get update -qq
	$$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends $$missing > /dev/null

# The newest Python that can make a virtual environment.
$(BIN)/python: | system
	@for python in $(PYTHONS); do
		if "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
			2> /dev/null; then
			echo "making $(VENV) with $$("$$python" --version)"
			exec "$$python" -m venv --clear $(VENV)
		fi
	done
	echo "no Python 3.11 or newer with the venv module among: $(PYTHONS)" >&2
	echo "install one, then: make install PYTHON=/path/to/python3" >&2
	exit 1

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "installing Python packages into $(VENV) (minutes, the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: install ## Check the machine, then tune LeNet for Adreno on what this machine has
	@$(BIN)/autotune doctor
	$(BIN)/autotune kernels --target adreno --model lenet --batch 4 --trials 128

test test-all: PACKAGES += $(TEST_PACKAGES)
test: install ## Run the quick tests, in at most ten minutes
	@$(call run_tests,-m "not slow")

test-all: install ## Run every test
	@$(call run_tests,)

# A test that takes times may fail in company: what failed is run once more by itself, and is named where it passes then.
define run_tests
	status=0
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(1) $(ARGS) || status=$$?
	[ "$$status" -eq 1 ] || exit "$$status"
	failed="$$($(BIN)/python -c 'import json; print(*json.load(open(".pytest_cache/v/cache/lastfailed")), sep="\n")')"
	echo "once more, one after the other:"
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(1) $(ARGS)
	echo "passed on the second try only:"
	echo "$$failed"
endef

lint: install ## Check style and types
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install ## Write docs/reference/commands.md, docs/reference/operators.md and the README's picture anew
	@$(BIN)/python -m autotune.cli.reference > docs/reference/commands.md
	$(BIN)/python -m autotune.cli.reference operators > docs/reference/operators.md
	$(BIN)/python benchmarks/picture.py --out docs/joint-fronts.svg

bench: install ## Run every benchmark; results in build/bench
	@state="$$(mktemp -d)"
	trap 'rm -rf "$$state"' EXIT
	one() {
		name="$$(basename "$$1" .py)"
		echo "== $$name"
		set -- $(BIN)/python "$$1" --json "build/bench/$$name.json" $(ARGS)
		if [ "$(AT_ONCE)" -ne 1 ]; then
			export XDG_STATE_HOME="$$state/$$name" PYTHONUNBUFFERED=1
			"$$@" 2>&1 | sed -u "s/^/$$name: /"
		else
			"$$@"
		fi || return 1
	}
	export -f one
	export state
	grep -ls '^from common.bars import .*run' benchmarks/*.py \
		| xargs -d '\n' -P $(AT_ONCE) -I {} bash -o pipefail -c 'one "$$1"' _ {}

clean: ## Remove what was built and cached; keep .venv and logs
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
