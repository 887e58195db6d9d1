# Every target makes its own environment in .venv when it is missing or out of date; nothing else needs to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-cuda lint format bench clean

help:
	@echo "make demo    the main job: plain decoding beside the ngram drafter on a real chat model"
	@echo "make test    all tests (under 10 minutes)"
	@echo "make test-full  the same with the long statistics (about half an hour)"
	@echo "make test-cuda  the tests of rules, noise and decoding on a GPU, where there is one"
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
	@$(BIN)/python -m outrider.compare demo

test: $(READY)
	@$(BIN)/python -m pytest $(ARGS)

test-full: $(READY)
	@OUTRIDER_TEST_FULL=1 $(BIN)/python -m pytest $(ARGS)

test-cuda: $(READY)
	@$(BIN)/python -m pytest -m cuda $(ARGS)

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
	rm -rf $(VENV)
