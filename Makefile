# `make demo` shows the main job. `make test` runs the unit tests, the tests on an API server and 2,000 simulated runs. Both do their own set-up.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# One selection of crates and features for all suites but `seeds`, whose profile has its own directory. With another selection cargo would replace the binaries at the same paths, also while another suite runs them.
TEST := $(CARGO) test --workspace
BUILD := $(TEST) --no-run --quiet
# The build that plays seeds: optimised, and with a seed for tokio's random numbers.
SIMULATE := RUSTFLAGS="$${RUSTFLAGS:-} --cfg tokio_unstable" $(CARGO)
# The allocator of `simulate` keeps freed pages, because the next run needs them again.
SEEDED := MIMALLOC_PURGE_DELAY=-1 $(TARGET)/simulation/simulate
# Tests that `cargo test` leaves out.
SUITES := bridge calls clouds compat e2e it lease seeds swap
# All builds of Go code have the same flags, so that each package is compiled once.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false $(GOFLAGS)
export IMAGES PLATFORMS IMAGE_SOURCE REGISTRY

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

.PHONY: quick
quick: ## the inner loop: format, lints and unit tests of the crates that changed since main, committed or not (BASE=another branch)
	@.ci/prerequisites cargo cc
	@CARGO="$(CARGO)" BASE="$(BASE)" RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),4) .ci/quick

.PHONY: demo
demo: ## show the main job on a real API server (CLOUD=digitalocean or hetzner: with that provider, against its test API; KEEP=1 leaves it running)
	@.ci/prerequisites cargo go cc
	@KEEP="$(KEEP)" CLOUD="$(CLOUD)" .ci/demo

.PHONY: build
build: ## build all that the suites other than seeds run: binaries, tests, test control plane
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	@$(BUILD) $(addprefix --test ,$(filter-out seeds,$(SUITES)))

.PHONY: build-go
build-go: ## build the providers in Go, vendors' Go clouds and the bridge, so that no suite compiles them beside tests with deadlines
	@.ci/prerequisites go
	@for module in go go/bridge/clouds digitalocean hetzner aws; do (cd providers/$$module && GOWORK=off go build -o /dev/null ./...); done
	@cd providers/aws && GOWORK=off go build -o /dev/null tool

.PHONY: demo-clouds
demo-clouds: ## the demo with each cloud that has a test API
	@$(MAKE) demo CLOUD=digitalocean
	@$(MAKE) demo CLOUD=hetzner

.PHONY: test
test: units it seeds ## unit tests, the ccm on a real API server, and 2,000 seeds of the simulation; the other suites are below

# Tests wait more than they compute, so four run at once, also on two cores.
.PHONY: units
units: ## a part of `make test`: the unit tests, and the tests of documents and Go code
	@.ci/prerequisites cargo go npm cc
	@$(MAKE) --no-print-directory lint-proto control-plane
	.ci/test-go
	RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),4) $(TEST)

# The optimised build takes 15 minutes of CPU, or 6 after a change of the ccm, and the seeds take two.
.PHONY: seeds
seeds: ## a part of `make test`: 2,000 seeds of the simulation, its kept plans, and the check that a seed has one trace
	@.ci/prerequisites cargo cc
	$(SIMULATE) test --profile simulation -p simulation --test seeds
	@$(MAKE) --no-print-directory simulate FROM=1 SEEDS=2000

.PHONY: it
it: ## a part of `make test`: the ccm process and the mock provider on a real API server (FILTER=b_s8 for some tests only)
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),4) $(TEST) --test it -- $(FILTER)

.PHONY: lease
lease: ## contention for the Lease with an upstream Go CCM (three minutes, mostly waiting)
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	$(TEST) --test lease -- --test-threads=24 --nocapture

.PHONY: controls
controls: ## the control run of each violation that the ccm reports: the ccm must not report the same of an honest provider (seven minutes, mostly waiting)
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),4) $(TEST) --test it -- --ignored lies::table::honest

.PHONY: compat
compat: ## the same scenarios with the ccm and an upstream Go CCM: the results must be equal, or differ as documented (UPDATE_DOCS=1 writes the table in docs/parity.md)
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	UPDATE_DOCS="$(UPDATE_DOCS)" $(TEST) --test compat -- --nocapture --skip through_go

.PHONY: compat-bridge
compat-bridge: ## the same scenarios with the ccm twice: with the mock as its provider, and through the bridge and the adapter (UPDATE_DOCS=1 writes the table in docs/go-clouds.md)
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	UPDATE_DOCS="$(UPDATE_DOCS)" $(TEST) --test compat -- --nocapture through_go

.PHONY: calls
calls: ## the calls that each Go cloud gets from an upstream Go CCM, and from the ccm with the bridge: no more, or at most the documented number (CALLS_CLOUDS="byid,fake" for some; UPDATE_DOCS=1 writes docs/go-clouds.md)
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	UPDATE_DOCS="$(UPDATE_DOCS)" $(if $(CALLS_CLOUDS),CALLS_CLOUDS="$(CALLS_CLOUDS)") $(TEST) --test calls -- --nocapture

.PHONY: conformance
conformance: providers swap bridge clouds ## providers in other languages, vendors' providers, and Go clouds behind the bridge: their own tests, the conformance suite, and the ccm with each

.PHONY: providers
providers: ## a part of `make conformance`: the providers' own tests, and the conformance suite against each (LANGUAGES="java typescript python go python-first rust-first go-first digitalocean hetzner"; JOBS=3 suites at once)
	@.ci/prerequisites cargo go npm cc python3 $(if $(filter-out python% go% rust% typescript digitalocean hetzner,$(or $(LANGUAGES),java)),mvn)
	@$(MAKE) --no-print-directory control-plane
	CONFORMANCE_BIN=$(abspath $(TARGET))/debug providers/test.sh $(LANGUAGES)
	CONFORMANCE_BIN=$(abspath $(TARGET))/debug providers/interrupted.sh
	CONFORMANCE_BIN=$(abspath $(TARGET))/debug JOBS="$(JOBS)" providers/conformance.sh $(LANGUAGES)
	$(if $(LANGUAGES),,providers/guide.sh)

.PHONY: swap
swap: ## a part of `make conformance`: providers in other languages replace each other under the ccm
	@.ci/prerequisites cargo go cc python3
	@$(MAKE) --no-print-directory control-plane
	$(TEST) --test swap -- --nocapture

.PHONY: bridge
bridge: ## a part of `make conformance`: Go clouds behind the bridge, the conformance suite against each, and the ccm with each (if LANGUAGES is set, without the long tests of AWS, which take half an hour)
	@.ci/prerequisites cargo go cc python3
	@$(MAKE) --no-print-directory control-plane
	$(TEST) --test bridge -- --nocapture --test-threads=$(or $(RUST_TEST_THREADS),3) $(if $(LANGUAGES),--skip whole_)

.PHONY: clouds
clouds: ## a part of `make conformance`: the providers of DigitalOcean and Hetzner Cloud under the ccm
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	$(TEST) --test clouds -- --nocapture --test-threads=$(or $(RUST_TEST_THREADS),3)

.PHONY: smoke
smoke: ## a provider on a real account: make, check and remove one object of each kind, after you confirm the cost (CLOUD=digitalocean or hetzner; YES=1 does not ask)
	@.ci/prerequisites go
	@CLOUD="$(CLOUD)" YES="$(YES)" providers/smoke.sh

.PHONY: e2e
e2e: ## the images and manifests on real kubelets, as an operator uses them (as root; KEEP=1 leaves the first test's cluster running)
	@.ci/prerequisites cargo go cc
	@$(BUILD)
	@$(TARGET)/debug/control-plane --machine
	KEEP="$(KEEP)" $(TEST) --test e2e -- --nocapture --test-threads=1

.PHONY: images
images: ## OCI archives of all images, without a daemon or a registry (IMAGES="ccm provider-mock" PLATFORMS=linux/amd64)
	@.ci/images

.PHONY: image-contexts
image-contexts: ## the files that the Containerfiles copy, for docker, podman or buildah by hand (IMAGES, PLATFORMS)
	@.ci/images contexts

.PHONY: sbom
sbom: ## the contents of each image of `make images`, beside it, as CycloneDX (IMAGES, PLATFORMS)
	@.ci/sbom/make

.PHONY: sbom-scan
sbom-scan: ## known vulnerabilities of the packages in `make sbom`'s lists, by the public database OSV (needs osv.dev; SEEDED=1 needs no network: it shows that the scan finds one)
	@.ci/sbom/scan $(if $(SEEDED),seeded)

.PHONY: images-reproducible
images-reproducible: ## build all images twice, in two places, and compare every byte
	@.ci/images-reproducible

# `make test` uses the newest minor; the older ones have a go-MINOR.mod beside testenv/control-plane/go.mod.
.PHONY: test-kubernetes
test-kubernetes: ## the ccm on the API server of an older supported minor (KUBERNETES=1.35 or 1.34; FILTER=b_s8 for some tests only)
	@.ci/prerequisites cargo go cc
	@test -n "$(KUBERNETES)" || { echo "name the minor: make test-kubernetes KUBERNETES=1.35"; exit 1; }
	TESTENV_KUBERNETES=$(KUBERNETES) $(MAKE) --no-print-directory control-plane
	TESTENV_KUBERNETES=$(KUBERNETES) RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),4) $(TEST) --test it -- $(FILTER)

.PHONY: generate
generate: ## generate the Go code of the contract, after a change of proto/
	@.ci/prerequisites go npm
	@.ci/generate-go

# With --all-targets cargo leaves out the suites, even those that are named.
.PHONY: check
check: ## formatting, lints, documentation, commit subjects
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace $(addprefix --test ,$(SUITES)) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	@.ci/generate-go --check
	@unformatted=$$(gofmt -l testenv/control-plane testenv/helm providers/go providers/testapi providers/digitalocean providers/hetzner providers/aws) && test -z "$$unformatted" || { echo "gofmt -l: $$unformatted"; exit 1; }
	@.ci/lint-workflows
	@.ci/commit-subjects

.PHONY: docs
docs: ## write the parts of docs/ that are made from the tests, flags, metrics and events
	UPDATE_DOCS=1 $(TEST) --quiet --test docs
	UPDATE_DOCS=1 $(TEST) --quiet --lib docs_
	UPDATE_DOCS=1 $(TEST) --quiet --test it -- is_documented

.PHONY: manifests
manifests: ## render deploy/kustomize and the snapshots of its tests from the Helm chart
	@$(MAKE) --no-print-directory control-plane
	UPDATE_MANIFESTS=1 $(TEST) --quiet --test manifests -- kustomize_has_what each_set_of_values

.PHONY: lint-proto
lint-proto: ## buf lint STANDARD over the contract, buf breaking against its committed images
	@.ci/lint-proto

.PHONY: control-plane
control-plane: ## build the test control plane (minutes the first time, seconds after that)
	@$(BUILD)
	@$(TARGET)/debug/control-plane

.PHONY: simulate
simulate: ## the ccm in virtual time (SEEDS=1000 plays 1,000 seeds from FROM=1; SEED=7 shows one, and the shortest plan that fails, with LOGS=ccm=debug; KEEP=name keeps that plan in simulation/regressions; PLAN=file shows a kept plan; PLANTED=1 shows which seed finds each planted bug; EXHAUSTIVE=1 plays single faults and pairs in one Service's and one Node's life)
	@.ci/prerequisites cargo cc
	$(SIMULATE) build --quiet --profile simulation -p simulation
	$(SEEDED) $(if $(SEED)$(PLAN),$(if $(SEED),--seed $(SEED),--plan $(PLAN)) $(if $(LOGS),--logs $(LOGS)) $(if $(KEEP),--keep simulation/regressions/$(KEEP).json),--seeds $(or $(SEEDS),1000) --from $(or $(FROM),1)) $(if $(BUGS),--bugs $(BUGS)) $(if $(PLANTED),--planted $(if $(filter 1,$(UPDATE_DOCS)),--update-docs docs/simulation.md)) $(if $(EXHAUSTIVE),--exhaustive)

.PHONY: fuzz
fuzz: ## libFuzzer on the input from providers, users and strangers (TARGETS="brake nodes" chooses, DURATION=600 is the seconds for each)
	@.ci/prerequisites cargo cc c++
	@TARGETS="$(TARGETS)" DURATION="$(DURATION)" .ci/fuzz

.PHONY: mutants
mutants: ## mutations of decision code, which the unit tests must find (hours; ROOMS="queue route" for some; SHARD=1/4 for a part)
	@.ci/prerequisites cargo cc
	@SHARD="$(SHARD)" ROOMS="$(ROOMS)" .ci/mutants

.PHONY: deny
deny: ## licences, duplicates and sources of the dependencies, and a check that `make advisories` finds an advisory
	@.ci/deny

.PHONY: advisories
advisories: ## known vulnerabilities of the dependencies, by the public database of RustSec (needs github.com)
	@.ci/deny advisories

.PHONY: bench
bench: ## measure the ccm and an upstream Go CCM, in one run, at release settings
	@.ci/prerequisites cargo go cc
	@$(MAKE) --no-print-directory control-plane
	$(CARGO) build --release -p ccm -p provider-mock -p bench
	$(TARGET)/release/bench $(SCENARIOS)

.PHONY: version
version: ## print the version of crates, images, chart and manifests (VERSION=1.2.3 sets it)
	@.ci/version $(if $(VERSION),set "$(VERSION)")

.PHONY: version-check
version-check: ## check that crates, images, chart and manifests have one version (TAG=v1.2.3: that one, with a section in the changelog)
	@.ci/version check $(TAG)

.PHONY: dist
dist: ## build a release: images, SBOMs, binaries, chart, manifests, crates, checksums (REGISTRY: the place of the images)
	@.ci/prerequisites cargo go cc python3
	@.ci/dist

.PHONY: publish-crates
publish-crates: ## publish the crates for vendors on crates.io (CARGO_REGISTRY_TOKEN; builds nothing; DRY_RUN=1 packs and builds only)
	$(CARGO) publish --workspace --locked $(if $(DRY_RUN),--dry-run --allow-dirty,--no-verify)
