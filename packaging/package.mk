# `make package`: the deb and rpm packages, from what `make install` installs below /usr. Equal sources give equal bytes: times
# are that of the last commit, paths are replaced (packaging/remap.sh), and the order of files is that of their names.

PACKAGE := target/package
TOOLS := target/tools
CARGO_DEB := $(TOOLS)/cargo-deb-3.8.0
CARGO_RPM := $(TOOLS)/cargo-generate-rpm-0.21.1
CARGO_DENY := $(TOOLS)/cargo-deny-0.18.5

# Who publishes packages names an address for their users.
MAINTAINER ?= tranche developers <tranche@tranche.invalid>

# Of the last commit; `make dist` writes it into release.mk, because a tarball has no commits.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)

RPM_ARCH := $(MACHINE)
COMPAT_RPM := tranche-nvidia-compat-$(VERSION)-1.noarch.rpm

.PHONY: package deb package-tree deb-file package-files

# Directories are made with the umask.
package:
	umask 022 && $(MAKE) package-tree && $(MAKE) package-files

# The package of tranche alone, for `make test-vm`.
deb:
	umask 022 && $(MAKE) package-tree && $(MAKE) deb-file

$(CARGO_DEB) $(CARGO_RPM) $(CARGO_DENY):
	rm -rf $@.part
	$(CARGO) install --locked --root $@.part --target-dir $(TOOLS)/build $(shell echo '$(@F)' | sed 's/-\([0-9]\)/@\1/')
	mv $@.part $@

# What the packages have.
package-tree:
	$(CARGO) fetch --quiet --locked --target $(HOST)
	rm -rf $(PACKAGE)
	$(MAKE) install DESTDIR=$(PACKAGE)/root PREFIX=/usr
	$(MAKE) install-nvidia-names DESTDIR=$(PACKAGE)/compat PREFIX=/usr
	find $(PACKAGE)/root/usr/share/man -type f -exec gzip -9n '{}' +
	packaging/tree.sh $(PACKAGE) '$(VERSION)' '$(SOURCE_DATE_EPOCH)' '$(MAINTAINER)'

deb-file package-files: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
deb-file: $(CARGO_DEB)
	$(CARGO_DEB)/bin/cargo-deb --no-build --no-strip --locked --maintainer '$(MAINTAINER)' --output $(PACKAGE)/

package-files: deb-file $(CARGO_DEB) $(CARGO_RPM)
	$(CARGO_DEB)/bin/cargo-deb --no-build --no-strip --locked --maintainer '$(MAINTAINER)' --output $(PACKAGE)/ \
	    --variant nvidia-compat
	$(CARGO_RPM)/bin/cargo-generate-rpm generate-rpm --auto-req builtin --output $(PACKAGE)/
	@if command -v rpmbuild > /dev/null; then \
	    rpmbuild -bb --quiet --define '_topdir $(CURDIR)/$(PACKAGE)/rpmbuild' --define '_rpmdir $(CURDIR)/$(PACKAGE)' \
	        --define '_rpmfilename $(COMPAT_RPM)' --define 'tranche_version $(VERSION)' \
	        --define 'tranche_links $(CURDIR)/$(PACKAGE)/compat' packaging/rpm/tranche-nvidia-compat.spec; \
	else \
	    echo "$(COMPAT_RPM): not made, because there is no rpmbuild"; \
	fi
	cd $(PACKAGE) && sha256sum *.deb *.rpm | tee SHA256SUMS

# Needs root and a Debian mirror for the clean roots; they are kept in target/roots. What `make package` has built is not
# compiled again, but packed again: so the tests never see packages of an earlier commit.
.PHONY: test-packages
test-packages: package
	$(MAKE) package-kubelet KUBELET_PROGRAM='$(TESTED_KUBELET)' KUBELET_PACKAGE=$(PACKAGE)-tested
	cp $(PACKAGE)/*.deb $(PACKAGE)/*.rpm $(PACKAGE)-tested
	tests/packages/run.sh $(PACKAGE)-tested target/roots

# The second build compiles everything.
.PHONY: reproduce
reproduce: package
	packaging/reproduce.sh
