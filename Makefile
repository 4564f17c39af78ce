# make quick        what is tested in a minute once it is compiled: the pure crates, which crate uses which, and the style
# make demo         starts a container with a MIG device of a machine that is made of files
# make test         installs what the tests need (on Debian, as root) and runs all tests but those of tranche-kubelet
# make test-all     the same tests, where what repeats (kills, races, variations) is done in full and not as a sample, as in CI
# make test-kubelet builds tranche-kubelet and runs its tests before a fake kubelet (minutes the first time: tokio, tonic)
# make test-real-mps   compares the stand-in for NVIDIA's MPS programs with the real ones, and lets a real client reach a
#                   server: packages of Debian's component non-free, 12 MB, fetched into target/nvidia (a minute; a part of
#                   make test where that can be reached)
# make test-mig-exact   compares the planner of MIG with a list of all states, for a large sample of wishes (seconds,
#                   after a release build of tranche-plan)
# make bless        writes the expected output of tests anew (cdi-specs, src/plan/sim, tests/data/doctor, src/bench/tests, the
#                   matrix of docs/reference/support.md, docs/maintaining/tested.md); read the difference
# make attack       runs only the attack suite, and prints its table
# make attack-long SECONDS=60   the same; each race runs for this many seconds
# make model SECONDS=3600   tries everything at once at random: root, users, pods, a broker that is killed, full disks, boots;
#                   prints its seed and a table, and makes a failure small (SEED=1 begins with that one)
# make mutants      changes root, hook and ledger in every small way, and shows the changes that no test notices
#                   (hours); MUTANTS=ledger changes only the ledger
# make test-vm      boots a machine with systemd and cgroup v2 under emulation, and checks there engines, the units and a
#                   reboot (minutes)
# make test-engines SUITE=bookworm   runs the tests of engines with those of a Debian suite: bookworm, trixie or sid, in a
#                   root that is kept (minutes, as root)
# make test-real-driver   gives the files of NVIDIA's drivers 470, 535 and 550, from Debian's packages, to containers of
#                   Debian 11, 12 and 13 (minutes and 3 GiB the first time, as root)
# make fuzz SECONDS=60   runs the fuzz target of each parser for this many seconds (nightly Rust and cargo-fuzz)
# make bench        measures starts, generation and tranche-kubelet, as ratios within one run
# make build lint
# make install      installs everything that the package tranche has; PREFIX=/usr/local, DESTDIR= (docs/how-to/install.md)
# make install-kubelet   the same for tranche-kubelet, its unit and its man page
# make package      makes the deb and rpm packages, in target/package (docs/how-to/install.md)
# make package-kubelet   makes those of tranche-kubelet, in target/package-kubelet
# make test-packages   makes all of them, that of tranche-kubelet with a small program, looks into them, and installs them
#                   into clean roots (a minute)
# make image        makes the image of tranche-kubelet for Kubernetes, in target/image, with buildah (docs/how-to/kubernetes.md);
#                   KUBELET_PROGRAM=FILE is another static program
# make kubelet      builds tranche-kubelet for the image and its package: small, static, and minutes the first time
# make test-image   looks into an image with a small program, builds it twice, and starts it with podman (seconds)
# make test-chart   renders the Helm chart with real helm, and checks the objects and what is refused (half a minute)
# make reproduce    makes the packages twice, the second time from a clone in another directory, and compares (minutes)
# make deny         checks licences and sources of the crates (deny.toml)
# make dist         makes a tarball with all crates, from which tranche is built without a network
# make test-dist    builds that tarball with the Rust of Debian unstable, in a clean root without a network (minutes)
# make install-nvidia-names   links the names that engines and scripts call: nvidia-cdi-hook, nvidia-ctk,
#                   nvidia-container-runtime and its hook (docs/how-to/engines.md)

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo

# tranche-oci is static: no loader runs before it, so nothing in an image's environment reaches it. It is built for musl
# if Rust has that target, otherwise with glibc linked statically. It has no unwind tables: a panic aborts it, and without
# symbols there is nothing to show of a stack.
MACHINE := $(shell uname -m)
MUSL := $(MACHINE)-unknown-linux-musl
HAVE_MUSL := $(wildcard $(shell rustc --print sysroot)/lib/rustlib/$(MUSL)/lib)
ifneq ($(HAVE_MUSL),)
OCI_TARGET := $(MUSL)
OCI_FLAGS :=
else
OCI_TARGET := $(MACHINE)-unknown-linux-gnu
OCI_FLAGS := -C target-feature=+crt-static -C force-unwind-tables=no
# The libraries bring unwind tables of their own. The start files for aarch64 refer to theirs, which have to stay.
ifeq ($(MACHINE),x86_64)
OCI_FLAGS += -C link-arg=-Wl,-T,src/bin/no-unwind-tables.ld
endif
# Relocations in the compact form, which is 60 KiB less to read at each start. The code in static programs that applies
# them is in glibc 2.36 and later.
GLIBC := $(subst ., ,$(shell getconf GNU_LIBC_VERSION))
ifeq ($(shell test "$(lastword $(GLIBC))" -ge 36 && echo yes),yes)
OCI_FLAGS += -C link-arg=-Wl,-z,pack-relative-relocs
endif
endif
# Less inlining than at opt-level 2 (225): 130 KiB less to read at each start, and no measurable difference in the time of
# the hooks, which wait for the kernel.
OCI_FLAGS += -C llvm-args=-inline-threshold=50
OCI := target/$(OCI_TARGET)/oci/tranche-oci
RUNTIME := target/$(OCI_TARGET)/oci/tranche-runtime
# Where tests and benchmarks find the static programs: they attack and measure what packages have.
STATIC = TRANCHE_OCI_STATIC="$(CURDIR)/$(OCI)" TRANCHE_RUNTIME_STATIC="$(CURDIR)/$(RUNTIME)"
OCI_BUILD = CARGO_ENCODED_RUSTFLAGS="$$(packaging/remap.sh $(RUSTFLAGS) $(OCI_FLAGS))" $(CARGO) build --no-default-features --profile oci --target $(OCI_TARGET)
# All programs go into one directory, because tranche writes the path of the tranche-oci in its own directory into
# specifications. Cargo builds them for different targets, and would put a dynamic tranche-oci beside tranche.
BIN := target/tranche

# In a tarball: the version with the commit, and the time of the commit (packaging/dist.mk).
-include release.mk

# The version that --version shows: with the commit in a checkout, without it in a tarball. Packagers may set it.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
TRANCHE_VERSION ?= $(VERSION)$(if $(COMMIT), ($(COMMIT)))
cli oci: export TRANCHE_VERSION := $(TRANCHE_VERSION)
# Programs that were compiled in pieces differ from build to build.
cli oci verify: export CARGO_INCREMENTAL := 0

.PHONY: quick build cli oci verify rust demo test test-all tests kubelet-tests test-kubelet test-mig-exact test-real-mps test-engines test-real-driver bless attack attack-long model mutants test-vm bench fuzz lint packages

build: cli oci verify

# Nothing here mounts, waits or needs a package.
quick:
	$(CARGO) test --lib -p tranche-core -p tranche-plan -p tranche-inject
	$(CARGO) test --test layers --test style --test queue

cli:
	CARGO_ENCODED_RUSTFLAGS="$$(packaging/remap.sh $(RUSTFLAGS))" $(CARGO) build --release --features pages,web --bin tranche --bin tranche-broker --bin tranche-driver --bin tranche-web --bin tranche-pages
	install -D -m 755 target/release/tranche $(BIN)/tranche
	install -D -m 755 target/release/tranche-broker $(BIN)/tranche-broker
	install -D -m 755 target/release/tranche-driver $(BIN)/tranche-driver
	install -D -m 755 target/release/tranche-web $(BIN)/tranche-web

oci:
	$(OCI_BUILD) --bin tranche-oci
	$(OCI_BUILD) --bin tranche-runtime --features runtime
	install -D -m 755 $(OCI) $(BIN)/tranche-oci
	install -D -m 755 $(RUNTIME) $(BIN)/tranche-runtime

# The programs that `tranche verify` and `tranche bench` run inside containers are a package of their own
# (verify/Cargo.toml). Its build makes the libraries that they are linked with, by a C compiler.
VERIFY := target/verify/release/tranche-verify
LOAD := target/verify/release/tranche-load

verify:
	@if [ "$(filter $(MACHINE),x86_64 aarch64)" = "" ]; then \
	    echo "tranche-verify and tranche-load: not built, because NVIDIA has no CUDA for $(MACHINE)"; \
	elif command -v "$${CC:-cc}" >/dev/null; then \
	    CARGO_ENCODED_RUSTFLAGS="$$(packaging/remap.sh $(RUSTFLAGS))" \
	        $(CARGO) build --release --manifest-path verify/Cargo.toml --target-dir target/verify && \
	    install -D -m 755 $(VERIFY) $(BIN)/tranche-verify && \
	    install -D -m 755 $(LOAD) $(BIN)/tranche-load; \
	else \
	    echo "tranche-verify and tranche-load: not built, because there is no C compiler ($${CC:-cc}); tranche verify needs it"; \
	fi

rust:
	@packaging/rust.sh "$(CARGO)"

packages:
	@tests/bed/packages.sh

# In the profile and with the features of the tests: this compiles quickly, and `make test` does not compile it again.
DEMO := target/debug
demo: rust
	@echo "make demo: compiles tranche (about three minutes on two cores, the first time), and starts a container with podman"
	@tests/bed/packages.sh demo
	$(CARGO) build --all-features --bin tranche --bin tranche-driver --bin tranche-oci --example fake-host --example fake-nvml
	@demo/run.sh $(DEMO)/tranche $(DEMO)/tranche-oci $(DEMO)/examples/fake-host

# What is tested is compiled at the same time: the static programs are each optimised as a whole, by one processor.
test: rust packages
	@$(MAKE) --no-print-directory --jobs=3 oci verify tests
	@$(STATIC) TRANCHE_VERIFY="$(CURDIR)/$(VERIFY)" CARGO="$(CARGO)" tests/bed/run-tests.sh

test-all:
	@TRANCHE_TEST_ALL=1 $(MAKE) --no-print-directory test

# A cold build does without the crates of tranche-kubelet.
tests:
	$(CARGO) test --workspace --exclude tranche-kubelet --all-features --no-run

kubelet-tests:
	$(CARGO) test -p tranche-kubelet --no-run

test-kubelet: rust
	$(CARGO) test -p tranche-kubelet

# Prints the table, and what was not compared.
test-real-mps: rust
	@rm -f target/not-run-mps.txt
	@TRANCHE_TEST_NOT_RUN="$(CURDIR)/target/not-run-mps.txt" $(CARGO) test --all-features --test mps
	@sort -u target/not-run-mps.txt 2> /dev/null || true

# Prints how many pairs of a state and a wish were compared for each product.
test-mig-exact: rust
	$(CARGO) test --release -p tranche-plan --lib -- --ignored --nocapture brute_force

# What is compiled here runs in the root of the suite.
SUITE ?= bookworm
test-engines: rust
	@tests/bed/packages.sh suites
	@$(MAKE) --no-print-directory --jobs=2 verify tests
	@TRANCHE_VERIFY="$(CURDIR)/$(VERIFY)" CARGO="$(CARGO)" tests/suites/run.sh "$(SUITE)" target/suites

test-real-driver: rust
	@tests/bed/packages.sh suites
	@tests/bed/packages.sh demo
	@$(MAKE) --no-print-directory verify
	$(CARGO) build --all-features --bin tranche --bin tranche-broker --bin tranche-driver --bin tranche-oci
	@tests/real-driver/run.sh "$(CURDIR)/$(DEMO)/tranche" "$(CURDIR)/$(DEMO)/tranche-oci" "$(CURDIR)/$(VERIFY)" target/real-driver

# The tests that have files of expected output, with the switch that writes these files.
bless:
	TRANCHE_BLESS=1 $(CARGO) test --quiet --test discovery built_in_inventories
	TRANCHE_BLESS=1 $(CARGO) test --quiet --test specs golden
	TRANCHE_BLESS=1 $(CARGO) test --quiet -p tranche-bench --lib is_the_one_that_is_kept
	TRANCHE_BLESS=1 $(CARGO) test --quiet --test cli each_test_host_gets_the_page_that_is_kept
	TRANCHE_BLESS=1 $(CARGO) test --quiet --test cli the_support_matrix_is_the_page_that_is_kept

attack: packages oci
	@$(STATIC) CARGO="$(CARGO)" tests/bed/run-tests.sh attacks

attack-long: packages oci
	@TRANCHE_TEST_RACE_SECONDS=$(SECONDS) $(STATIC) CARGO="$(CARGO)" tests/bed/run-tests.sh attacks

# Another seed each time, which is printed.
model: rust packages
	TRANCHE_TEST_SEED=$${SEED:-$$(date +%s)} TRANCHE_TEST_MODEL_SECONDS=$(SECONDS) \
	    $(CARGO) test --all-features --test model -- --nocapture

# tests/mutants/survivors.md lists the mutants that survived, and why. SHARD=0/8 runs a part of each directory, and
# MUTANTS=ledger one directory. For each directory, the quick tests that can notice a change of it run.
SHARD ?= 0/1
MUTANTS ?= ledger root hook
MUTANTS_ledger ?= --lib --test hooks -- ledger claim
MUTANTS_root ?= --lib --test hooks
MUTANTS_hook ?= --lib --test hooks
FILES_ledger := --file 'src/core/ledger.rs' --file 'src/core/ledger/**'
FILES_root := --file 'src/core/root.rs' --file 'src/core/root/**'
FILES_hook := --file 'src/hook/**'
mutants: packages $(MUTANTS:%=mutants-%)

mutants-%:
	@$(CARGO) mutants --version >/dev/null 2>&1 || $(CARGO) install cargo-mutants --locked
	@mkdir -p target/mutants/$*
	@# Exit codes 2 and 3: mutants survived or timed out, and are listed. The next directory still runs.
	$(CARGO) mutants --test-workspace true --shard $(SHARD) --timeout 120 $(FILES_$*) \
	    -o target/mutants/$* -- $(MUTANTS_$*) || [ $$? -eq 2 ] || [ $$? -eq 3 ]

test-vm: deb
	@tests/bed/packages.sh vm
	@tests/vm/run.sh target/vm

bench: oci
	$(STATIC) $(CARGO) bench
	$(CARGO) build --release --bin tranche --bin tranche-broker --bin tranche-driver --example fake-host --example fake-nvml --example fake-mps
	TRANCHE_HOST_PROGRAMS="$(CURDIR)/target/release" TRANCHE_KUBELET="$(abspath $(KUBELET_PROGRAM))" \
	    $(CARGO) bench -p tranche-kubelet --bench plugin

SECONDS ?= 60
FUZZ := $(sort $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs))))

# libFuzzer's instrumentation is not stable in Rust. Without a nightly compiler, the stable one is asked for it.
FUZZ_CARGO = $(if $(shell $(CARGO) +nightly --version 2>/dev/null),$(CARGO) +nightly,RUSTC_BOOTSTRAP=1 $(CARGO))

# `make fuzz FUZZ=broker SECONDS=600` runs one target. A finding is written to fuzz/artifacts, and ends the run.
fuzz:
	@cargo-fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	@for target in $(FUZZ); do \
	    mkdir -p target/fuzz-corpus/$$target && \
	    $(FUZZ_CARGO) fuzz run $$target target/fuzz-corpus/$$target fuzz/corpus/$$target -- -max_total_time=$(SECONDS) -timeout=10 || exit 1; \
	done

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) fmt --check --manifest-path verify/Cargo.toml
	$(CARGO) clippy --manifest-path verify/Cargo.toml --target-dir target/verify -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --workspace --no-deps --document-private-items

include packaging/install.mk
include packaging/package.mk
include packaging/kubernetes.mk
include packaging/dist.mk
