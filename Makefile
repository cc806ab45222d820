# The doors of the house. Each is a thin call; what it does stands in xtask/, in Rust, with tests.
# Arguments for the program behind a door: make bench ARGS="--workload read --seconds 10"

ARGS ?=
PREFIX ?= /usr/local
DESTDIR ?=
comma := ,

.PHONY: help demo test check fix bench examples peers sim model siege fuzz install packages packages-test

help:
	@cargo xtask help

# A guided tour of the store on a temporary database: under two minutes after the build.
demo:
	cargo xtask demo $(ARGS)

# Every test, with a sum at the end.
test:
	cargo xtask test $(ARGS)

# Reads the tree and changes nothing: format, tidy, layering, licences, clippy, docs.
check:
	cargo xtask check $(ARGS)

# Repairs what a program can repair.
fix:
	cargo xtask fix

# The seeds' workloads on this machine, all of them, with both engines: three quarters of an hour.
bench:
	cargo xtask bench $(or $(ARGS),--workload all --engine memory$(comma)ssd --seconds 4 --html bench.html --json bench.json)

# Examples that are workspaces of their own (one needs SQLite, which is C), with their tests. They are built for this alone.
examples:
	tests/examples/run $(ARGS)

# Other stores on the same workloads; they are built for this alone.
peers:
	cargo run --release --manifest-path peers/Cargo.toml -- $(ARGS)

# Each fuzz target for a minute, from a seed of its own each day.
fuzz:
	cargo run --profile checked -p plinth-fuzz -- all 60 $(or $(ARGS),$(shell date +%Y%m%d))

# The simulation: any number of seeds.
sim:
	cargo xtask sim $(ARGS)

# What Raft promises, in ten thousand runs of its model with seeds of their own each day.
model:
	cargo xtask model $(or $(ARGS),$(shell expr $$(date +%Y%m%d) \* 10000)..$(shell expr $$(date +%Y%m%d) \* 10000 + 5000))

# A thousand hostile clients for ten minutes beside good ones, with each engine.
siege:
	cargo xtask siege $(ARGS)

# The plinth program, the C library, headers, pkg-config and CMake files: make install PREFIX=/usr DESTDIR=./stage
install:
	cargo xtask install --prefix "$(PREFIX)" --destdir "$(DESTDIR)" $(ARGS)

# What can be handed to people, in target/packages: deb, rpm, tarball, wheel, container image, Helm chart, Homebrew formula, checksums.
packages:
	cargo xtask packages $(ARGS)

# The same, then installed and tried as a user would: the release build takes a quarter of an hour, so `make test` does it with its own.
packages-test:
	cargo xtask packages-test $(ARGS)
