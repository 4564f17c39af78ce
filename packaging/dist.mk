# `make dist`: a tarball of the last commit with the sources of all crates, from which `make` builds without a network.

DIST := tranche-$(VERSION)

.PHONY: dist

dist:
	rm -rf target/dist
	mkdir -p target/dist/$(DIST)
	git archive HEAD | tar -x -C target/dist/$(DIST)
	printf 'TRANCHE_VERSION ?= %s\nSOURCE_DATE_EPOCH ?= %s\n' '$(TRANCHE_VERSION)' '$(SOURCE_DATE_EPOCH)' \
	    > target/dist/$(DIST)/release.mk
	cd target/dist/$(DIST) && $(CARGO) vendor --quiet --locked vendor
	printf '%s\n' '[source.crates-io]' 'replace-with = "vendored"' '[source.vendored]' 'directory = "vendor"' \
	    > target/dist/$(DIST)/.cargo/config.toml
	tar -C target/dist --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner \
	    --mode=u+rw,go+r-w,a+X -cf - $(DIST) | gzip -9n > target/dist/$(DIST).tar.gz
	cd target/dist && sha256sum $(DIST).tar.gz

# Needs root and a Debian mirror, as `make test-packages` does.
.PHONY: test-dist
test-dist: dist
	tests/packages/offline.sh target/dist/$(DIST).tar.gz target/roots

# Licences and sources of all crates (deny.toml). Advisories need their database: cargo deny check advisories. The first run
# installs cargo-deny, for minutes.
.PHONY: deny
deny: $(CARGO_DENY)
	$(CARGO_DENY)/bin/cargo-deny --workspace check licenses bans sources
