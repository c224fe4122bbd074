# Needs: python3.11 with venv, g++ (SGLang's n-gram drafter compiles its trie at first use), about 3 GB of disk.
PYTHON ?= python3.11
BIN := .venv/bin
REQUIREMENTS := requirements/cpu.txt requirements/cpu-nodeps.txt requirements/dev.txt requirements/lock.txt

# A builder's machine may offer many cores; OpenMP threads that wait for each other cost more than they bring.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test slow check lock clean .venv

help:
	@echo "make .venv    install everything into .venv (once; again when requirements change)"
	@echo "make demo     the whole pipeline on a real SGLang server, with a report in demo-out/"
	@echo "make test     the tests"
	@echo "make slow     the tests that take minutes"
	@echo "make check    ruff and mypy"
	@echo "make clean    remove what was built"

# The stamp, not the folder, says whether the installation is whole.
.venv: .venv/installed

.venv/installed: $(REQUIREMENTS) pyproject.toml
	@command -v g++ >/dev/null || { echo "laps-sd: g++ is missing; install it (Debian: apt-get install g++)" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "laps-sd: $(PYTHON) is missing; set PYTHON=… to a Python 3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/lock.txt -r requirements/cpu.txt -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements/cpu-nodeps.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

demo: .venv
	$(BIN)/laps-sd demo --out demo-out

test: .venv
	$(BIN)/python -m pytest -m "not slow"

slow: .venv
	$(BIN)/python -m pytest -m slow

check: .venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# torch is left out: its version names the build (+cpu), which an index may not offer.
lock: .venv
	{ echo '# Versions of everything that cpu.txt, cpu-nodeps.txt and dev.txt install; written by `make lock`.'; \
	  $(BIN)/pip freeze --exclude-editable | grep '==' | grep -v -e '^torch==' -e '^triton==' -e '^nvidia-' -e '^pip==' -e '^setuptools==' -e '^wheel=='; } > requirements/lock.txt.new
	mv requirements/lock.txt.new requirements/lock.txt

clean:
	rm -rf .venv build dist demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
