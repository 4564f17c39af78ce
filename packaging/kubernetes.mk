# tranche-kubelet: `make image` makes the image that the chart in packaging/helm/tranche runs on each node, `make
# install-kubelet` and `make package-kubelet` install the program and its unit on the host. Nothing else compiles tonic.

# The static program, of the machine that it is for. It is made here if nobody names another one. The tests of packages take
# a small one in its place, which is made in a moment.
ifeq ($(origin KUBELET_PROGRAM),undefined)
KUBELET_PROGRAM := target/kubelet/tranche-kubelet
TESTED_KUBELET := target/stand-in/tranche-kubelet
image install-kubelet bench: kubelet
else
TESTED_KUBELET = $(KUBELET_PROGRAM)
endif

# The image has no loader, and no library.
ifeq ($(OCI_TARGET),$(MUSL))
KUBELET_FLAGS :=
else
KUBELET_FLAGS := -C target-feature=+crt-static
endif

KUBELET_CRATES := target/kubelet/crates.txt
KUBELET_PACKAGE ?= target/package-kubelet
# What the package has. Cargo.toml names this directory, too.
KUBELET_TREE := target/package-kubelet-tree

.PHONY: kubelet image install-kubelet package-kubelet kubelet-tree kubelet-files test-image test-chart

kubelet: export TRANCHE_VERSION := $(TRANCHE_VERSION)
kubelet: export CARGO_INCREMENTAL := 0
kubelet: rust
	CARGO_ENCODED_RUSTFLAGS="$$(packaging/remap.sh $(RUSTFLAGS) $(KUBELET_FLAGS))" \
	    $(CARGO) build -p tranche-kubelet --profile kubelet --target $(OCI_TARGET)
	install -D -m 755 target/$(OCI_TARGET)/kubelet/tranche-kubelet $(KUBELET_PROGRAM)

image:
	@tests/bed/packages.sh image
	packaging/image/build.sh '$(KUBELET_PROGRAM)' '$(VERSION)' '$(or $(SOURCE_DATE_EPOCH),0)' target/image

# Everything that the package tranche-kubelet has, below $(DESTDIR)$(PREFIX).
install-kubelet: cli
	$(call list-crates,--package tranche-kubelet,$(KUBELET_CRATES))
	install -D -m 755 '$(KUBELET_PROGRAM)' "$(DESTDIR)$(PREFIX)/bin/tranche-kubelet"
	$(call copy,packaging/kubelet/systemd/*,$(UNIT_DIR))
	$(call copy,packaging/kubelet/preset/*,$(PRESET_DIR))
	$(call copy,packaging/kubelet/man/*,$(PREFIX)/share/man/man8)
	sed -i 's|@VERSION@|$(TRANCHE_VERSION)|' "$(DESTDIR)$(PREFIX)"/share/man/man8/tranche-kubelet.8
	install -D -m 644 LICENSE "$(DESTDIR)$(PREFIX)/share/licenses/tranche-kubelet/LICENSE"
	install -D -m 644 $(KUBELET_CRATES) "$(DESTDIR)$(PREFIX)/share/doc/tranche-kubelet/crates.txt"

# In a directory of its own, so that the packages of `make package` and their hashes are the same with it and without it.
package-kubelet:
	umask 022 && $(MAKE) kubelet-tree && $(MAKE) kubelet-files

kubelet-tree:
	$(CARGO) fetch --quiet --locked --target $(HOST)
	rm -rf $(KUBELET_TREE) '$(KUBELET_PACKAGE)'
	$(MAKE) install-kubelet DESTDIR=$(KUBELET_TREE)/root PREFIX=/usr
	find $(KUBELET_TREE)/root/usr/share/man -type f -exec gzip -9n '{}' +
	packaging/tree.sh $(KUBELET_TREE) '$(VERSION)' '$(SOURCE_DATE_EPOCH)' '$(MAINTAINER)' kubelet

kubelet-files: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
kubelet-files: $(CARGO_DEB) $(CARGO_RPM)
	mkdir -p '$(KUBELET_PACKAGE)'
	$(CARGO_DEB)/bin/cargo-deb --no-build --no-strip --locked --maintainer '$(MAINTAINER)' --output '$(KUBELET_PACKAGE)/' \
	    --variant kubelet
	$(CARGO_RPM)/bin/cargo-generate-rpm generate-rpm --auto-req disabled --variant kubelet --output '$(KUBELET_PACKAGE)/'
	cd '$(KUBELET_PACKAGE)' && sha256sum *.deb *.rpm | tee SHA256SUMS

# The other program for the tests of packages.
target/stand-in/tranche-kubelet: tests/packages/stand-in.c
	mkdir -p target/stand-in
	$${CC:-cc} -O2 -s -static-pie -o $@ tests/packages/stand-in.c

test-packages: $(TESTED_KUBELET)

# With another program in the place of tranche-kubelet.
test-image:
	@tests/bed/packages.sh image
	@tests/chart/image.sh

# With real helm, which is downloaded once, into target/chart.
test-chart:
	@tests/bed/packages.sh chart
	@tests/chart/run.sh target/chart
