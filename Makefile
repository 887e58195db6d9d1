# Every target makes its own environment in .venv when it is missing or out of date; nothing else needs to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
# Tiny models run fastest on one thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)
MIN := .venv-min
OLDEST := 5.20.0
MIN_READY := $(MIN)/.ready-$(OLDEST)
MIN_TESTS := tests/target tests/decode tests/test_ranks.py tests/verify/test_processors.py tests/verify/test_sampling.py tests/test_turns.py tests/test_hf_generate.py
# Drafters that run models of transformers, read its configs or its tokenizers.
MIN_TESTS += $(addprefix tests/drafters/test_,draft_model.py early_exit.py eagle*.py medusa.py translation.py vocabularies.py)
WITH_PLUGINS := .venv-plugins
PLUGINS_READY := $(WITH_PLUGINS)/.ready
PLUGINS := $(wildcard plugins/outrider-*)
# Tests that go over all registered drafters, of which these are the plugins'; the kit is run by their own tests.
PLUGIN_NAMES := recycling or suffix or template or greedy_rows
PLUGIN_TESTS := tests/drafters/test_laws.py tests/decode/test_loop.py tests/decode/test_stopping.py
PLUGIN_TESTS += tests/decode/test_adaptive.py tests/decode/test_batch.py tests/decode/test_stats.py
PLUGIN_TESTS += tests/drafters/test_cascade.py tests/plugins/test_raising.py
ORACLE := .venv-oracle
ORACLE_READY := $(ORACLE)/.ready

.DEFAULT_GOAL := help
SCALE ?= 1
HEADS ?= training/smollm2/build
.PHONY: help demo heads test test-full test-min test-plugins test-cuda matrix checks oracle lint format bench clean

help:
	@echo "make demo    the main job: every drafter beside plain decoding on a real chat model, with a report"
	@echo "make heads   train the heads for the embedded model, from nothing (SCALE=0.01 for a trial; else many hours)"
	@echo "make test    all tests (10 minutes on four cores, half an hour on two slow ones)"
	@echo "make test-full  the same with the long statistics and 50 seeds (three hours and more)"
	@echo "make test-min   tests on the oldest transformers that is supported, in an environment of its own"
	@echo "make test-plugins  the plugins' own tests, and all drafters' tests on them, in an environment that has them installed"
	@echo "make matrix     every causal model type of transformers, tiny and random, against its own generate (10 minutes)"
	@echo "make checks     which check of outrider.check catches which fault, into docs/checks.md (two minutes)"
	@echo "make test-cuda  the tests of rules, noise and decoding on a GPU, where there is one"
	@echo "make oracle     EAGLE-3's network and exported heads against another implementation, in an environment of its own"
	@echo "make lint    ruff, ruff format --check, mypy --strict"
	@echo "make bench   speed, in interleaved pairs (about 10 minutes, wants a quiet machine)"
	@echo "make clean   remove the environment"

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: outrider needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --progress-bar on -c constraints.txt -e '.[demo,dev]'
	@touch $@

demo: $(READY)
	@mkdir -p build
	@$(BIN)/outrider fetch smollm2
	@$(BIN)/outrider compare -m smollm2 --every --with-hf --max-new-tokens 64 --runs 2 --html build/demo.html

heads: $(READY)
	@OUTRIDER=$(abspath $(BIN))/outrider PYTHON=$(abspath $(BIN))/python SCALE=$(SCALE) OUT=$(abspath $(HEADS)) training/smollm2/heads.sh

test: $(READY)
	@$(PYTEST) $(ARGS)

test-full: $(READY)
	@OUTRIDER_TEST_FULL=1 $(PYTEST) $(ARGS)

# The oldest supported transformers comes first; all else is shared with the other environment.
$(MIN_READY): $(READY)
	@echo "== setting up $(MIN) with transformers $(OLDEST)"
	@$(BIN)/python -m venv $(MIN)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' > $(MIN)/shared.pth
	@mv $(MIN)/shared.pth "$$($(MIN)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@$(MIN)/bin/python -m pip install --progress-bar on --no-deps --ignore-installed transformers==$(OLDEST)
	@touch $@

test-min: $(MIN_READY)
	@OMP_NUM_THREADS=1 $(MIN)/bin/python -m pytest -p no:cacheprovider -n $(WORKERS) $(MIN_TESTS) $(ARGS)

$(PLUGINS_READY): $(READY) $(wildcard plugins/*/pyproject.toml)
	@echo "== setting up $(WITH_PLUGINS) with the plugins"
	@$(BIN)/python -m venv $(WITH_PLUGINS)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' > $(WITH_PLUGINS)/shared.pth
	@mv $(WITH_PLUGINS)/shared.pth "$$($(WITH_PLUGINS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zshared.pth"
	@$(WITH_PLUGINS)/bin/python -m pip install --progress-bar on --no-deps $(addprefix -e ,$(PLUGINS))
	@touch $@

test-plugins: $(PLUGINS_READY)
	@OMP_NUM_THREADS=1 $(WITH_PLUGINS)/bin/python -m pytest -p no:cacheprovider -n $(WORKERS) $(PLUGINS) $(ARGS)
	@OMP_NUM_THREADS=1 $(WITH_PLUGINS)/bin/python -m pytest -p no:cacheprovider -n $(WORKERS) -k "$(PLUGIN_NAMES)" $(PLUGIN_TESTS) $(ARGS)

test-cuda: $(READY)
	@$(BIN)/python -m pytest -m cuda $(ARGS)

matrix: $(READY)
	@cd tests && ../$(BIN)/python -m matrix --write ../docs/models.md $(ARGS)

checks: $(READY)
	@cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -m check.table ../docs/checks.md

$(ORACLE_READY): $(READY) tests/oracle/requirements.txt
	@echo "== setting up $(ORACLE) with another implementation of EAGLE-3"
	@$(BIN)/python -m venv $(ORACLE)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' > $(ORACLE)/shared.pth
	@mv $(ORACLE)/shared.pth "$$($(ORACLE)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zshared.pth"
	@$(ORACLE)/bin/python -m pip install --progress-bar on --no-deps --ignore-installed -r tests/oracle/requirements.txt
	@touch $@

oracle: $(ORACLE_READY)
	@OMP_NUM_THREADS=1 $(ORACLE)/bin/python tests/oracle/eagle3_reference.py compare
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export OMP_NUM_THREADS=1 PYTHONPATH=tests && \
	$(BIN)/python -m oracle.eagle3_export "$$folder" && $(ORACLE)/bin/python -m oracle.eagle3_exported "$$folder"
	@$(PYTEST) tests/drafters/test_eagle_oracle.py $(ARGS)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python -m outrider.compare bench $(ARGS)

clean:
	rm -rf $(VENV) $(MIN) $(WITH_PLUGINS) $(ORACLE)
