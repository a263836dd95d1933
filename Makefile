# All set-up happens in .venv, made on first use; nothing else of the machine is touched.
# Needed: Python 3.11 or later, make, and a package index that pip can reach.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
PEERS := .venv/.installed-peers
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: help demo test test-long lint benchmark docs clean

help: ## show these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1 \t\2/p' Makefile | expand -t 14

demo: $(INSTALLED) ## measure a real encoder at every layer, then train it with four methods
	mkdir -p demo
	$(BIN)/python examples/docstrings.py demo/sentences.txt --count 3000
	$(BIN)/isotropy embed minilm --text demo/sentences.txt --site mean@all \
		--out demo/embeddings.safetensors --overwrite
	$(BIN)/isotropy measure demo/embeddings.safetensors --by layer
	$(BIN)/isotropy run demo --store demo/runs.db

test: $(INSTALLED) ## the whole suite and the examples in docstrings, except the minutes-long tests
	$(BIN)/pytest

test-long: $(INSTALLED) ## the minutes-long tests
	$(BIN)/pytest -m long

lint: $(INSTALLED) ## style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

benchmark: $(PEERS) ## our speed beside the peers', to benchmarks/results/
	$(BIN)/python benchmarks/run.py

docs: $(INSTALLED) ## write the pages of docs/ that are made from the code
	$(BIN)/python docs/generate.py

clean: ## remove what the other targets made, the virtual environment too
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is upgraded first: dependency groups need pip 25.1.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --upgrade pip
	$(PIP) --build-constraint constraints.txt --editable '.[all]' --group test --group lint
	touch $@

$(PEERS): $(INSTALLED)
	$(PIP) --group peers
	touch $@
