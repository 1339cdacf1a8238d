# Everything is installed by the project's own files into .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A plain path entry: the package is found even from a folder that holds a clone of the same name.
EDITABLE := --config-settings editable_mode=compat
# What makes an installation anew.
SOURCES := pyproject.toml $(wildcard p2pclust/clustering/c/*)

# The tests start hundreds of interpreters: each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-slow test-seeds docs arm long check check-form check-types check-mathematics check-peers format explore fuzz mutants scenarios swarms exhaustive soak benchmarks clean

# The main job on real input: eight peer processes, the aggregator is killed at round 27, the others finish.
demo: $(VENV)/.demo
	$(BIN)/p2pclust run scenarios/quickstart.toml

# Without the tests of `make long`, `make soak` and `make swarms`.
SHORT := not long and not soak and not swarms
FAST := $(BIN)/python -m pytest -q -m "not slow and not processes and $(SHORT)"

# All tests but the longest, of which one builds the site as `make docs` does. Beside the slow ones, of which those with real
# processes often wait, the cores have time for the fast ones and for seeds of simulated fleets of all kinds.
test: $(VENV)/.dev
	$(MAKE) --jobs 3 test-slow test-fast test-seeds

# Without pytest-xdist: handing ten thousand tests to workers would take as long as a quarter of these tests.
test-fast: $(VENV)/.dev
	nice -n 5 $(FAST)

# Three workers for two cores. No example in a docstring is slow.
test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "(slow or processes) and $(SHORT)" tests

test-seeds: $(VENV)/.dev
	nice -n 19 $(BIN)/p2pclust simulate --seeds 0:300 --protocol all

# The documents as a site, in build/site/index.html; a link that leads nowhere is an error. It needs no network. While you write:
# .venv/bin/mkdocs serve
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict

# The parts run side by side; each prints what it has to say when it is done.
check: check-form
	$(MAKE) --jobs 3 --output-sync=target check-mathematics check-peers check-types

check-form: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-types: $(VENV)/.dev
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m tests.ratchet

# The fast tests in two halves that take about as long.
MATHEMATICS := $(addprefix tests/,attacks choose clustering data estimators metrics protocols reproduce topology)

check-mathematics: $(VENV)/.dev
	$(FAST) -x p2pclust $(MATHEMATICS)

check-peers: $(VENV)/.dev
	$(FAST) -x tests $(addprefix --ignore=,$(MATHEMATICS))

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Tests of properties with new random examples in each run; `make test` draws the same ones every time. A failure prints
# how to repeat it. Some of them: make explore TESTS=tests/data
TESTS := tests
explore: $(VENV)/.dev
	P2PCLUST_HYPOTHESIS=explore $(BIN)/python -m pytest -n 2 --timeout 1800 -m "not processes and not long and not soak and not swarms" \
		$$(grep -rl "^from hypothesis" $(TESTS) --include="test_*.py")

# Attacks for a set time: messages of a peer that lies, damaged files and stores, strangers at a real peer. It prints the seed,
# the dearest messages, and of each finding the command that repeats it: make fuzz SECONDS=300 SEED=7
SECONDS := 120
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Small errors put into the core of a peer, one at a time: tests or simulated fleets must notice each. It takes hours, and goes on
# where it was stopped; results are kept in runs/mutants.jsonl. Another sample: make mutants COUNT=100 SEED=7
COUNT := 300
mutants: $(VENV)/.dev
	$(BIN)/pip install --quiet $(EDITABLE) -e ".[mutants]"
	$(BIN)/python -m tests.mutants --count $(COUNT) --resume runs/mutants.jsonl $(if $(SEED),--seed $(SEED))

# The passes over rows, compiled for ARM and run on an emulated CPU, have the bits that they have here; with 32 bits too, where
# arm-linux-gnueabihf-gcc is installed (on Debian: gcc-arm-linux-gnueabihf).
ARM_COMPILER := aarch64-linux-gnu-gcc
arm: $(VENV)/.dev
	@command -v $(ARM_COMPILER) qemu-aarch64 > /dev/null || \
		{ echo "make arm needs $(ARM_COMPILER) and qemu-aarch64; on Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"; exit 1; }
	$(BIN)/python -m pytest -q tests/clustering/test_kernels.py -k "of_c1"

# Tests that take long, of which shorter ones of the same kind are in make test.
long: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m long

# Every scenario of the folder as it stands, on real processes, with a table of what held. Some of them, and where their
# results go: .venv/bin/python -m tests.cli.run_scenarios NAME...; runs/scenarios/NAME
scenarios: $(VENV)/.dev
	$(BIN)/python -m tests.cli.run_scenarios

# Long proofs: many seeds of every swarm of simulated peers, in virtual time, and power cuts at every moment of a store's
# lives. Any other seeds: p2pclust simulate --seeds A:B
swarms: $(VENV)/.dev
	$(BIN)/p2pclust simulate --seeds 0:3000 --protocol all
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m swarms --timeout 1800

# All histories of three peers within bounds: every order of messages, losses and ends of tasks, and a crash after any effect.
# It prints a table, and checks that planted bugs are found; a row that takes longer than SECONDS is cut off.
exhaustive: $(VENV)/.dev
	$(BIN)/python -m tests.exhaustive --seconds $(SECONDS)

# Long proofs on real processes: a fault at every phase of a job; then jobs one after another while peers are killed, stopped
# and cut off at random moments, with a table at the end. Longer: make soak SECONDS=28800. Kills alone, in pieces:
# .venv/bin/python -m tests.soak --kills 200 --resume kills.jsonl --seconds 300
SECONDS := 600
soak: $(VENV)/.dev
	$(BIN)/python -m pytest -m soak --timeout 1800
	$(BIN)/python -m tests.soak --seconds $(SECONDS)

benchmarks: $(VENV)/.dev
	$(BIN)/pip install --quiet -e ".[benchmarks]"
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/local_sums.py
	$(BIN)/python benchmarks/estimators.py
	$(BIN)/python benchmarks/rivals.py $(if $(FEDFUZZCLUS),--fedfuzzclus $(FEDFUZZCLUS))
	$(BIN)/python benchmarks/vertical.py
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/failover.py
	$(BIN)/python benchmarks/fleet_size.py
	$(BIN)/python benchmarks/membership.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/autoencoders.py
	$(BIN)/python benchmarks/links.py
	$(BIN)/python benchmarks/private_cm.py
	$(BIN)/python benchmarks/liars.py
	$(BIN)/python benchmarks/chosen_questions.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("p2pclust needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python $(SOURCES)
	@echo "installing p2pclust into $(VENV)"
	$(BIN)/pip install --quiet $(EDITABLE) -e .
	touch $@

$(VENV)/.dev: $(VENV)/bin/python $(SOURCES)
	@echo "installing p2pclust and its development tools into $(VENV)"
	$(BIN)/pip install --quiet $(EDITABLE) -e ".[dev,models]"
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build device/build dist runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
