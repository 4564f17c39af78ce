# `make install`: everything that the package tranche has, below $(DESTDIR)$(PREFIX). Whole directories of packaging/ are taken, so that
# a new unit or rule is a new file there and nothing else.

# podman reads the precreate hook only if hooks_dir in containers.conf names this directory (hooks/README.md). It is not the
# shared default, in which podman build, buildah and CRI-O refuse a hook of this stage.
HOOKS_DIR := /usr/share/tranche/hooks.d

# systemd, systemd-tmpfiles and udev also read these below /usr/local, where only an administrator installs.
UNIT_DIR := $(PREFIX)/lib/systemd/system
PRESET_DIR := $(PREFIX)/lib/systemd/system-preset
TMPFILES_DIR := $(PREFIX)/lib/tmpfiles.d
SYSUSERS_DIR := $(PREFIX)/lib/sysusers.d
RULES_DIR := $(PREFIX)/lib/udev/rules.d
# Of SELinux modules that an administrator may install.
SELINUX_DIR := $(PREFIX)/share/selinux/packages
DOC_DIR := $(PREFIX)/share/doc/tranche

# Man pages and completions, as they lie below PREFIX/share, and the licences of the crates.
SHARE := target/package/share
CRATES := target/package/crates.txt

HOST = $(shell rustc -vV | sed -n 's/^host: //p')

# In the documents for people who change tranche, and not for those who use it.
NOT_INSTALLED := docs/explanation/architecture.md docs/explanation/benchmarks.md $(wildcard docs/maintaining/*.md)

.PHONY: pages licences install install-nvidia-names

pages: cli
	rm -rf $(SHARE)
	target/release/tranche-pages commands $(SHARE)
	install -d -m 755 $(SHARE)/man/man8
	for page in packaging/man/*; do \
	    sed 's|@VERSION@|$(TRANCHE_VERSION)|' "$$page" > "$(SHARE)/man/man8/$${page##*/}" || exit 1; \
	done

# $(call list-crates,options,file): writes the licences of the crates that `cargo tree` shows with these options.
define list-crates
	mkdir -p $(dir $(2))
	$(CARGO) tree --locked --edges normal,no-proc-macro --prefix none $(1) --target $(HOST) --format '{p}' | \
	    awk '$$1 !~ /^tranche(-|$$)/ { sub(/^v/, "", $$2); print $$1 "@" $$2 }' | LC_ALL=C sort -u > $(2:.txt=.names)
	$(CARGO) metadata --locked --format-version 1 --filter-platform $(HOST) | \
	    target/release/tranche-pages licences $$(cat $(2:.txt=.names)) > $(2)
endef

# What `tranche` and `tranche-web` contain; the other programs of the package contain less.
licences: cli
	$(call list-crates,--features web,$(CRATES))

# $(call copy,files,directory): copies files of packaging/ in which the programs of a package have to be those of $(PREFIX).
define copy
	install -d -m 755 "$(DESTDIR)$(2)"
	for file in $(wildcard $(1)); do \
	    sed 's,/usr/\(bin\|libexec\)/tranche,$(PREFIX)/\1/tranche,g' "$$file" > "$(DESTDIR)$(2)/$${file##*/}" && \
	    chmod 644 "$(DESTDIR)$(2)/$${file##*/}" || exit 1; \
	done
endef

install: build pages licences
	install -d -m 755 "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 $(BIN)/tranche $(BIN)/tranche-oci $(BIN)/tranche-runtime "$(DESTDIR)$(PREFIX)/bin"
	@# The programs that nobody types.
	install -D -m 755 $(BIN)/tranche-broker "$(DESTDIR)$(PREFIX)/libexec/tranche/tranche-broker"
	install -m 755 $(BIN)/tranche-driver $(BIN)/tranche-web "$(DESTDIR)$(PREFIX)/libexec/tranche"
	[ ! -e $(BIN)/tranche-verify ] || \
	    install -m 755 $(BIN)/tranche-verify $(BIN)/tranche-load "$(DESTDIR)$(PREFIX)/libexec/tranche"
	$(call copy,hooks/precreate/tranche.json,$(HOOKS_DIR))
	$(call copy,packaging/systemd/*,$(UNIT_DIR))
	$(call copy,packaging/preset/*,$(PRESET_DIR))
	$(call copy,packaging/tmpfiles/*,$(TMPFILES_DIR))
	$(call copy,packaging/sysusers/*,$(SYSUSERS_DIR))
	$(call copy,packaging/selinux/*,$(SELINUX_DIR))
	$(call copy,packaging/monitoring/*,$(PREFIX)/share/tranche/monitoring)
	$(if $(wildcard packaging/udev/*),$(call copy,packaging/udev/*,$(RULES_DIR)))
	find $(SHARE) -type f | while read -r file; do \
	    install -D -m 644 "$$file" "$(DESTDIR)$(PREFIX)/share/$${file#$(SHARE)/}" || exit 1; \
	done
	for file in README.md CHANGELOG.md SECURITY.md hooks/README.md docs/examples/config.yaml \
	    $(filter-out $(NOT_INSTALLED),$(wildcard docs/*/*.md)); do \
	    install -D -m 644 "$$file" "$(DESTDIR)$(DOC_DIR)/$$file" || exit 1; \
	done
	install -D -m 644 LICENSE "$(DESTDIR)$(PREFIX)/share/licenses/tranche/LICENSE"
	install -m 644 $(CRATES) "$(DESTDIR)$(DOC_DIR)/crates.txt"

# Makes links in the directory to which `make install` copies the programs. docker 29.2 and later needs nvidia-cdi-hook
# on dockerd's PATH for --gpus, and earlier versions nvidia-container-runtime-hook. If another program has one of these names
# (NVIDIA's toolkit), the rule fails and keeps it.
NVIDIA_NAMES := nvidia-cdi-hook:tranche-oci nvidia-ctk:tranche-oci \
    nvidia-container-runtime:tranche-runtime nvidia-container-runtime.cdi:tranche-runtime \
    nvidia-container-runtime.legacy:tranche-runtime nvidia-container-runtime-hook:tranche-runtime \
    nvidia-container-toolkit:tranche-runtime nvidia-mig-parted:tranche

install-nvidia-names:
	@for pair in $(NVIDIA_NAMES); do \
	    link="$(DESTDIR)$(PREFIX)/bin/$${pair%%:*}"; program=$${pair#*:}; \
	    if [ "$$(readlink "$$link")" = "$$program" ]; then continue; fi; \
	    if [ -e "$$link" ] || [ -L "$$link" ]; then \
	        echo "$$link: exists and is not a link to $$program; remove it first" >&2; exit 1; \
	    fi; \
	    mkdir -p "$(DESTDIR)$(PREFIX)/bin" && ln -s "$$program" "$$link" || exit 1; \
	done
