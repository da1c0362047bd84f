# Weir: everything a newcomer types. `make help` lists the targets.
#
# `setup` installs what is missing and costs half a second when nothing is; `demo`, `test` and the
# others call it first. Namespaces and huge pages need root; without it those tests skip themselves.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
KEEP ?=
ROWS ?=
QUICK ?=
OLD ?=
NEW ?= target/bench/summary.json

CARGO ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

# Huge pages of 2 MiB that tests and benchmarks may use; given back at the end.
TEST_PAGES := 128
BENCH_PAGES := 768

.PHONY: help setup build demo test check bench bench-save bench-diff soak install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install by name what this machine lacks (Debian 12; needs root only if something is missing)
	@.ci/setup

build: setup ## the programs, release profile
	$(CARGO) build --release -p control -p dataplane -p tests --bin weir --bin weiradm --bin weir-testpmd --bin udp-peer
	$(CARGO) build --release -p weir-shim

demo: build ## a client, the balancer and four servers in namespaces, with real traffic (KEEP=1 leaves it up)
	@KEEP='$(KEEP)' tests/demo/demo.sh

test: build ## all tests; as root also those in network namespaces and on huge pages
	@.ci/with-hugepages $(TEST_PAGES) .ci/test

check: setup ## formatting, lints, documentation, then all tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items
	@$(MAKE) --no-print-directory test

bench: setup ## nanoseconds a packet against DPDK's testpmd (ROWS=pattern, QUICK=1)
	$(CARGO) build --release -p tests -p dataplane -p control --bin bench --bin weir-testpmd --bin weir
	@ROWS='$(ROWS)' QUICK='$(QUICK)' WEIR_BIN='$(CURDIR)/target/release/weir' .ci/with-hugepages $(BENCH_PAGES) target/release/bench

bench-save: bench ## the benchmarks, kept as target/bench/COMMIT.json to compare with later
	cp target/bench/summary.json "target/bench/$$(git describe --always --dirty).json"

bench-diff: ## compares two runs: OLD=target/bench/COMMIT.json, NEW (default: the last run)
	@test -n '$(OLD)' || { echo 'make bench-diff OLD=FILE [NEW=FILE]; kept runs:'; ls target/bench; exit 2; }
	@target/release/bench --diff '$(OLD)' '$(NEW)'

soak: build ## the tests that take minutes, an hour and a half in all: long runs, fuzzing, figures beside testpmd
	@WEIR_SOAK=1 .ci/with-hugepages $(TEST_PAGES) .ci/test

MAN := $(DESTDIR)$(PREFIX)/share/man
COMPLETIONS := $(DESTDIR)$(PREFIX)/share

install: build ## programs, unit, manual pages, completions under PREFIX (/usr/local), DESTDIR in front
	install -D -m 755 -t '$(DESTDIR)$(PREFIX)/bin' target/release/weir target/release/weiradm target/release/weir-testpmd
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/weir' target/release/libweir_ipvs.so
	install -d '$(DESTDIR)$(PREFIX)/lib/systemd/system'
	sed 's|@PREFIX@|$(PREFIX)|' control/weir.service >'$(DESTDIR)$(PREFIX)/lib/systemd/system/weir.service'
	install -d '$(MAN)/man5' '$(MAN)/man8' '$(COMPLETIONS)/bash-completion/completions' \
		'$(COMPLETIONS)/zsh/site-functions' '$(COMPLETIONS)/fish/vendor_completions.d'
	target/release/weir manual weir >'$(MAN)/man8/weir.8'
	target/release/weir manual weiradm >'$(MAN)/man8/weiradm.8'
	target/release/weir manual weir.toml >'$(MAN)/man5/weir.toml.5'
	for program in weir weiradm; do \
		complete="target/release/weir completions --program $$program"; \
		$$complete bash >'$(COMPLETIONS)/bash-completion/completions/'$$program && \
		$$complete zsh >'$(COMPLETIONS)/zsh/site-functions/_'$$program && \
		$$complete fish >'$(COMPLETIONS)/fish/vendor_completions.d/'$$program.fish || exit; \
	done
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/share/doc/weir' README.md CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT

clean: ## remove what was built
	$(CARGO) clean
