# Every target installs what it needs; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BUILD := build
SEED ?= 1
STEPS ?= 1000
ONLY ?=
ARCHITECTURES ?=
KREW_URL ?=
VENV := .venv
BIN := $(VENV)/bin
UV := $(BUILD)/uv/bin/uv
INSTALLED := $(VENV)/.installed
PARALLEL := --numprocesses=logical --dist=worksteal
SLOW_FILES = $(shell sed 's/::.*//' tests/slow.txt | sort -u)
PACKAGES := admission agent api autoscaling certs cli console demo http_edge inventory kernelcache kube kubectl_gpu manifests oci operands pool reconciler scheduler server simulator telemetry
SOURCES := $(PACKAGES) packaging tests

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
export PYTHONPATH := packaging
# With it each worker of pytest and each process of a test compiles every module again: a third of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sort | awk -F ':.*?## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(UV): requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo "installing uv into $(BUILD)/uv"
	@$(PYTHON) -m venv $(BUILD)/uv
	@$(BUILD)/uv/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements-uv.lock
	@touch $@

$(INSTALLED): requirements.lock pyproject.toml | $(UV)
	@echo "installing the locked environment into $(VENV)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: install
install: $(INSTALLED) ## the locked environment in .venv

.PHONY: lock
lock: | $(UV) ## resolve pyproject.toml into requirements.lock
	$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --extra dev \
	  --output-file requirements.lock pyproject.toml

.PHONY: fmt
fmt: install ## format and fix what can be fixed
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)
	for board in charts/gpu-control-plane/files/dashboards/*.json; do \
	  $(BIN)/python -m json.tool --indent 2 --sort-keys --no-ensure-ascii $$board $$board; done

.PHONY: lint
lint: install ## ruff: style and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

.PHONY: types
types: install ## mypy --strict
	$(BIN)/mypy $(SOURCES)

.PHONY: arch
arch: install ## import contracts
	$(BIN)/lint-imports

.PHONY: unit
unit: install ## unit and component tests but for the slow ones, on all cores
	$(BIN)/pytest $(PARALLEL) -m 'not slow'

.PHONY: test
test: install ## what one runs at each step: lint, types, import contracts, unit and component tests
	@$(MAKE) --no-print-directory --jobs --keep-going lint types arch unit

.PHONY: slow-test
slow-test: install ## the unit and component tests that tests/slow.txt names
	$(BIN)/pytest $(PARALLEL) -m slow $(SLOW_FILES)

.PHONY: nightly-test
nightly-test: install ## unit and component tests, all of them; fails where tests/slow.txt lacks a slow one
	$(BIN)/pytest $(PARALLEL) --check-slow-list

.PHONY: slow-list
slow-list: install ## measure all unit and component tests, and write tests/slow.txt
	$(BIN)/pytest $(PARALLEL) --write-slow-list

.PHONY: demo
demo: install ## the main job on an embedded in-memory cluster, narrated
	@$(BIN)/gpu-control-plane demo

.PHONY: demo-console
demo-console: install ## the console's page on an in-memory cluster in which pods come, wait and end: make demo-console [SEED=7]
	@$(BIN)/gpu-control-plane demo --console --seed $(SEED)

.PHONY: node-demo
node-demo: programs ## a kernel cache on a real kubelet, narrated; builds it once, as cluster-test
	@$(BIN)/pytest tests/cluster/node/caches/test_node_demo.py --with-cluster --quiet --no-header

.PHONY: playground
playground: install ## all of it in a real cluster on this machine that stays, with console and kubectl; builds it once (12 minutes, needs Go)
	@tests/cluster/components/build.sh $(BUILD)/kubernetes etcd kube-apiserver kube-scheduler kube-controller-manager kubectl kwok karpenter
	@$(BIN)/python -m tests.playground up

.PHONY: playground-down
playground-down: ## end that cluster
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m tests.playground down; fi

.PHONY: programs
programs: install ## the programs of the real cluster, built once (needs Go, and a C compiler)
	@tests/cluster/components/build.sh $(BUILD)/kubernetes

.PHONY: cluster-test
cluster-test: programs ## the same system on an unmodified Kubernetes; builds it once (needs Go, a C compiler, Node.js, root, Debian's packages)
	@$(BIN)/python -m tests.cluster

.PHONY: story-test
story-test: programs ## the part of cluster-test that each commit runs: the stories of its suites, none that tests/cluster/nightly.txt names
	@$(BIN)/python -m tests.cluster --stories

.PHONY: long-test
long-test: install ## the long form of every test that has one (nightly): make long-test [ONLY=tests/unit/pool]
	$(BIN)/pytest --long -m long $(PARALLEL) $(ONLY)

.PHONY: gpu-nfd-coverage
gpu-nfd-coverage: install ## the inventory of each node of tests/data/nodes.yaml, with each label missing and invalid, and on an unmodified Kubernetes
	@tests/cluster/components/build.sh $(BUILD)/kubernetes
	$(BIN)/pytest tests/unit/inventory/test_nfd_coverage.py $(PARALLEL)
	$(BIN)/pytest tests/cluster/inventory/test_described_nodes.py --with-cluster

.PHONY: cosign-test
cosign-test: install ## signatures of caches: ours by cosign, cosign's by us; builds it once (some three minutes)
	@tests/cluster/components/build.sh $(BUILD)/kubernetes registry cosign
	$(BIN)/pytest tests/cluster/caches/registries/test_cosign.py --with-cluster --long

.PHONY: tools-test
tools-test: install ## what deptry finds in imports, and kube-score in rendered objects (nightly)
	$(BIN)/deptry . --extend-exclude '(demo|simulator|packaging|build)/'
	$(BIN)/deptry . --exclude '\.venv|build/' --ignore DEP002,DEP004
	@tests/cluster/components/build.sh $(BUILD)/kubernetes kube-score
	$(BIN)/pytest tests/cluster/manifests/test_kube_score.py --with-cluster --long

.PHONY: fault-test
fault-test: programs ## a fault run on an unmodified Kubernetes: make fault-test SEED=7 STEPS=2000 [ONLY=watch]
	$(BIN)/python -m tests.fault --seed $(SEED) --steps $(STEPS) $(addprefix --only ,$(ONLY))

.PHONY: bench
bench: install ## measure, write build/bench/*.json and docs/performance.md
	$(BIN)/python -m tests.bench

.PHONY: bench-karpenter
bench-karpenter: programs ## how soon nodes of an unmodified Karpenter come and serve their pods
	$(BIN)/pytest tests/cluster/autoscaling --with-cluster --long -m figures --write-figures
	$(BIN)/python -m tests.bench.page

.PHONY: bench-cluster
bench-cluster: bench-karpenter ## that, and pods a second on an unmodified Kubernetes, beside no extender and an echo extender
	$(BIN)/python -m tests.bench_cluster

.PHONY: manifests
manifests: install ## print everything a cluster needs into build/manifests
	@mkdir -p $(BUILD)/manifests
	@for target in all crds rbac webhooks policy scheduler-config alerts examples; do \
	  $(BIN)/gpu-control-plane render $$target > $(BUILD)/manifests/$$target.yaml; \
	  echo $(BUILD)/manifests/$$target.yaml; done

.PHONY: chart
chart: install ## generate charts/gpu-control-plane from the builders of manifests
	$(BIN)/python -m chart.build charts/gpu-control-plane

.PHONY: image
image: install ## the container image as an OCI layout tar, without a registry (on Debian 12): make image [ARCHITECTURES="amd64 arm64"]
	$(BIN)/python -m image.build $(BUILD)/image/gpu-control-plane.tar $(addprefix --architecture ,$(ARCHITECTURES))

.PHONY: kubectl-gpu
kubectl-gpu: install ## the archive of kubectl gpu and its manifest for krew (half a minute of CPU): make kubectl-gpu [KREW_URL=https://...]
	$(BIN)/python -m krew.build $(BUILD)/kubectl-gpu $(addprefix --url ,$(KREW_URL))

.PHONY: console
console: install ## the console's page in console/edge/static, from its sources in console/web (needs Node.js 20 and npm)
	$(BIN)/python -m typescript.row_types console/web/src/rows.ts
	cd console/web && npm ci --ignore-scripts && npm run check && npm run bundle

.PHONY: proto
proto: install ## generate the gRPC messages of kubelet and of CSI from their .proto files
	$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --mypy_out=quiet:. \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy api/kubelet/proto/*.proto api/csi/proto/*.proto

.PHONY: golden
golden: install ## regenerate the golden manifests, docs/settings.md and docs/reference
	UPDATE_GOLDEN=1 $(BIN)/pytest -q tests/unit/manifests tests/unit/operands tests/unit/test_lessons.py tests/unit/cli/test_settings_reference.py tests/unit/docs

.PHONY: docs
docs: install ## the pages of docs as a site in build/site
	$(BIN)/mkdocs build --strict

.PHONY: presubmit
presubmit: ## what CI runs for each commit
	@.ci/run
