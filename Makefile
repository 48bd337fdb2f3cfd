# Everything runs in .venv, which `make setup` creates with the versions pinned in constraints.txt.
#
#   make PYTHON=python3.12 setup      another interpreter (remove .venv first if it exists)
#   make PIP_FLAGS="..." setup        further options for pip, for example where to find a CPU build of torch
#   make test ARGS="-x -k paired"     further options for pytest

PYTHON ?= python3
PIP_FLAGS ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet $(PIP_FLAGS) -c constraints.txt

# A stamp is written only after its installation succeeded, so an interrupted or failed one is tried again.
SETUP_STAMP := $(VENV)/.setup-done
INTEGRATIONS_STAMP := $(VENV)/.integrations-done
LOOKS_STAMP := $(VENV)/.looks-done
MUTATION_STAMP := $(VENV)/.mutation-done
BENCH_STAMP := $(VENV)/.bench-done
PEERS_STAMP := $(VENV)/.bench-peers-done

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-all lint format coverage mutation mutation-sample looks package bench bench-learning bench-distributions bench-mixture bench-distributed bench-peers matter drills census digits examples sharpness accuracy audit-pages evidence equations command-line report docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP_STAMP)  ## create .venv and install pairgrad, pairgrad-paper and their development tools

$(SETUP_STAMP): pyproject.toml paper/pyproject.toml constraints.txt
	@rm -f $@
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pairgrad, pairgrad-paper and their development tools into $(VENV)"
	@$(INSTALL) -e '.[dev]'
	@$(INSTALL) -e ./paper
	@touch $@

demo: $(SETUP_STAMP)  ## run the demonstration
	@$(BIN)/pairgrad demo

# One worker per core, one thread per worker. `make test WORKERS=0` runs in this process.
WORKERS ?= auto
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(SETUP_STAMP)  ## run the tests, without the slow ones
	$(PYTEST) $(ARGS)

test-all: $(INTEGRATIONS_STAMP) $(MUTATION_STAMP) lint docs  ## run lint, the documentation build, every test, slow ones and those of the adapters included, and a sample of mutants
	$(PYTEST) -m "" $(ARGS)
	$(MAKE) mutation-sample

# Lightning, transformers and TensorBoard are large, and only the adapters' own tests need them: without them these are skipped.
$(INTEGRATIONS_STAMP): $(SETUP_STAMP)
	@if $(INSTALL) -e '.[dev,integrations]'; then touch $@; \
	else echo "test-all: lightning, transformers or tensorboard could not be installed; going on without them" >&2; fi

lint: $(SETUP_STAMP)  ## check format, lint, docstrings, types, the tree, public names and signatures, and links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --warnings
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_tree.py tests/test_imports.py tests/test_public_api.py tests/test_links.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_docs.py -k "links or citations or navigation"

format: $(SETUP_STAMP)  ## format the code and apply the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(SETUP_STAMP)  ## run the tests with coverage by lines, subprocesses included, and write docs/coverage.md
	rm -rf build/coverage && mkdir -p build/coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o build/coverage/report.json
	$(BIN)/python -m benchmarks.coverage build/coverage/report.json

package: $(SETUP_STAMP)  ## build the wheels and source archives of both distributions into dist/, and try them in a clean environment
	$(BIN)/python -m hatchling build
	cd paper && ../$(BIN)/python -m hatchling build -d ../dist
	$(BIN)/python -m pytest -m "" tests/test_package.py $(ARGS)

docs: $(SETUP_STAMP)  ## build the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(MUTATION_STAMP): $(SETUP_STAMP)
	@$(INSTALL) -e '.[dev,mutation]'
	@touch $@

MUTATION := OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutation run --jobs 2

mutation: $(MUTATION_STAMP)  ## put small mistakes into the core and the auditor and count those that the tests notice; takes hours, and resumes
	$(MUTATION) $(ARGS)

mutation-sample: $(MUTATION_STAMP)  ## the same for a sample of the potentials
	$(MUTATION) --modules potentials --sample 60 --seed 1 --minutes 10 --least 80

$(LOOKS_STAMP): $(SETUP_STAMP)
	@$(INSTALL) -e '.[dev,looks]'
	@touch $@

looks: $(LOOKS_STAMP)  ## look at every page in Chromium (on the PATH, or named by PAIRGRAD_CHROMIUM), wide and narrow, light and dark
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 -m "" tests/looks $(ARGS)

$(BENCH_STAMP): $(SETUP_STAMP)
	@$(INSTALL) -e '.[dev,bench]'
	@touch $@

# The peers are large and have narrow version ranges: the benchmarks run without them if they cannot be installed.
bench-peers: $(BENCH_STAMP)
	@if [ $(PEERS_STAMP) -nt $(BENCH_STAMP) ]; then :; \
	elif $(INSTALL) -e '.[dev,bench,bench-peers]'; then touch $(PEERS_STAMP); \
	else echo "bench: the peers of the extra bench-peers could not be installed; continuing without them" >&2; fi

bench: $(BENCH_STAMP) bench-peers  ## run the benchmarks
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-learning: $(BENCH_STAMP)  ## measure time, memory and accuracy of the learning step, for the documentation
	$(BIN)/python -m benchmarks.learning $(ARGS)
	$(BIN)/python -m benchmarks.learning.accuracy

bench-distributions: $(BENCH_STAMP) bench-peers  ## compare the distribution with scipy, TensorFlow Probability and others, and write docs/distribution-benchmarks.md
	$(BIN)/python -m benchmarks.distribution $(ARGS)

bench-mixture: $(BENCH_STAMP)  ## time an iteration of EM against its two matrix products
	$(BIN)/python -m benchmarks.mixture $(ARGS)

bench-distributed: $(BENCH_STAMP)  ## measure time, bytes and memory of losses on several ranks, for the documentation
	$(BIN)/python -m benchmarks.distributed all --write $(ARGS)

matter: $(SETUP_STAMP)  ## learn concentrations with right and wrong backwards, and write docs/does-it-matter.md; ARGS="--data-root DIR"
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.matter $(ARGS)

drills: $(SETUP_STAMP)  ## kill runs, fill disks, mutate files and fuzz numbers, in at most an hour, and write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.drills $(ARGS)

census: $(SETUP_STAMP)  ## audit the custom backwards of public packages, each group in an environment of its own, and write docs/census.md; takes hours, and resumes
	$(BIN)/python -m census $(ARGS)

digits: $(SETUP_STAMP)  ## train the paper's three arms with three seeds on digits-lt, and evaluate them
	$(BIN)/pairgrad train digits-lt --realization original --realization consistent --realization arfr --seed 0 --seed 1 --seed 2 --output build/digits
	$(BIN)/pairgrad evaluate build/digits/digits-lt-* --json build/digits/evaluation.json

examples: $(SETUP_STAMP)  ## run the examples: the hyperspherical autoencoder and the clustering of text
	$(BIN)/python examples/hyperspherical_vae.py --output build/examples
	$(BIN)/python examples/text_clustering.py --output build/examples

sharpness: $(SETUP_STAMP)  ## measure how much of each learning certificate is used up and write docs/certificate-sharpness.md
	$(BIN)/python -m benchmarks.learning.certificates $(ARGS)

audit-pages: $(SETUP_STAMP)  ## compare the auditor with gradcheck, run it over torch, measure recording, and write docs/auditor-*.md
	$(BIN)/python -m benchmarks.auditor $(ARGS)

accuracy: $(SETUP_STAMP)  ## measure the accuracy on random states and write docs/accuracy.md
	$(BIN)/python -m benchmarks.accuracy $(ARGS)

evidence: $(SETUP_STAMP)  ## make the paper's tables and figures again, from records or computed, for the documentation
	OMP_NUM_THREADS=1 $(BIN)/pairgrad tables --output docs/evidence
	OMP_NUM_THREADS=1 $(BIN)/pairgrad figures --output docs/evidence
	$(BIN)/python -m docs.limits

equations: $(SETUP_STAMP)  ## write docs/equations.md from docs/equations.toml and the citations in docstrings
	$(BIN)/python -m docs.equations

command-line: $(SETUP_STAMP)  ## write docs/command-line.md from the commands
	$(BIN)/python -m docs.command_line docs/command-line.md

report: $(SETUP_STAMP)  ## show all tables and figures on one page, build/report/index.html
	OMP_NUM_THREADS=1 $(BIN)/pairgrad report --output build/report $(ARGS)

clean:  ## remove .venv, caches and everything built
	rm -rf $(VENV) build dist site htmlcov .coverage .pytest_cache .ruff_cache .hypothesis
	find src paper tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
