# `make` lists the targets. Everything lives in .venv; nothing outside this folder changes.

PYTHON ?=
OUTER := $(PATH)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# One thread per process: stages run one process per seed, and results must not depend on the number of cores.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false
export DVC_NO_ANALYTICS := 1
# A stage starts four short processes; recompiling our modules in each takes more than a second per stage.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup tour docs paper repro plan verify test test-core fuzz test-edits test-verl test-vllm test-trl test-trl-oldest reports readme lint lock gpu-check runs first-batches bench bench-scoring clean
.DELETE_ON_ERROR:
.PRECIOUS: .venv/.extra-%

help: ## this list
	@sed -nE 's/^([a-z%-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '  make %-12s %s\n' "$$target" "$$text"; done

setup: .venv/.ready ## install the pinned CPU environment in .venv; takes minutes the first time

repro: extra-verl ## regenerate every result and report whose inputs changed (dvc repro)
	@python -m repro.pipeline check # before DVC puts names into commands
	@exec dvc repro --keep-going
	@grep -lF 'class="check fails"' reports/*.html | sed 's/$$/: a sentence no longer holds; the page marks it with ✗/' # once more, below 50 stages

plan: setup ## what `dvc repro` would run after the last edit
	@exec python -m repro.pipeline plan

verify: setup ## compare the data here with the committed dvc.lock, and the runs made here with those in git
	@exec python -m repro.pipeline verify

test: lint ## style and layers, then the tests, in minutes; those of verl and of vLLM are apart
	@exec $(PYTEST) -m 'not verl and not vllm'

test-core: setup ## the tests that need neither the pipeline nor an extra, in a few minutes; on macOS too
	@exec $(PYTEST) -m 'not pipeline and not slow and not verl and not vllm and not trl'

fuzz: setup ## thousands of broken params.yaml: each is refused in one sentence, or trains; takes minutes
	@exec env REPRO_FUZZ=5000 pytest tests/test_fuzz_settings.py

# Of the two files that start Ray one comes first and one last, since two trainings on verl side by side fill two cores
# and the memory.
test-verl: extra-verl extra-trl ## verl and TRL on a CPU: add them to .venv, then the tests that need them, verl's training loop among them; REPRO_LONG=1: four more runs on Ray
	@exec $(PYTEST) -m 'verl or trl'

test-edits: setup ## ten edits of params.yaml through dvc repro, of which `make test` makes one; most of an hour
	@exec env REPRO_EDITS=all pytest tests/test_edits.py

test-vllm: extra-vllm ## vLLM on a CPU: add it to .venv, then the tests that need it
	@exec pytest -m vllm

test-trl: extra-trl ## TRL on a CPU: add it to .venv, then the tests that need it
	@exec pytest -m trl

test-trl-oldest: extra-trl ## the gradients of every loss type on the oldest TRL that repro.trl takes
	@uv pip install --quiet --no-deps --target build/trl-oldest "trl==$$(python -c 'from repro.trl.version import OLDEST; print(OLDEST)').*"
	@exec env PYTHONPATH=build/trl-oldest pytest -m trl tests/test_trl_loss.py

# Two workers. A file's tests stay together, and those of the whole pipeline come first (tests/conftest.py).
PYTEST = pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: setup ## ruff: lint and format; import-linter: the layers of src/repro; docs/style.md: the words of the pages
	ruff check && ruff format --check && lint-imports --no-cache && python docs/site/words.py

tour: setup ## a sampler of your own next to GRPO and ZVF, in a minute or two; SAMPLER=file.py, else notebooks/tutorials/own_sampler.py
	@exec python -m repro.pipeline tour $(if $(SAMPLER),"$(SAMPLER)")

docs: extra-docs ## the documentation site, in build/site; warnings are errors
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict && echo build/site/index.html

paper: setup ## the project as a paper, build/paper.pdf, from the tables and reports of this checkout
	@exec python docs/paper/make.py

readme: setup ## put the measured tables into README.md and docs/, and draw README's pictures
	python -m repro.runs again another-cpu
	python -m repro.report.front_page
	python -m repro.report.picture

reports: setup ## open the index of the reports, or print where it is
	@exec python -m repro.pipeline index --open

# In the shell's own environment if that has vLLM, as conda's of environment.yml does, else in .venv.
gpu-check: ## ten minutes on one GPU: which parts of the path to verl and vLLM hold there; a table
	@if PATH="$(OUTER)" python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("vllm"))' 2>/dev/null; \
	then export PATH="$(OUTER)"; fi; exec python -m repro.verl.gpu_check $(if $(MODEL),--model "$(MODEL)")

runs: setup ## make the declared runs that the store lacks (stop it any time); PANEL=answers; SHARD=3/16; AGAIN=1: all of them
	@exec python -m repro.runs make $(if $(SHARD),--shard "$(SHARD)") $(if $(PANEL),--panel $(PANEL)) $(if $(MINUTES),--minutes "$(MINUTES)") $(if $(AGAIN),--again)

first-batches: setup ## gradients of every arm before training again, for runs/first_batches; ten minutes of a core; POLICY=words
	@exec papermill notebooks/jobs/predictor.ipynb build/predictor.ipynb -p output runs/first_batches $(if $(POLICY),-p only $(POLICY))

bench: extra-trl ## the embedded engine against TRL's GRPOTrainer, and against itself before it was made faster
	@exec python -m benchmarks.speed $(if $(PAIRS),--pairs "$(PAIRS)") $(if $(ARMS),--arms $(ARMS))

bench-scoring: extra-verl extra-trl extra-vllm ## what choosing before scoring saves on verl and TRL; PAIRS=3
	@exec python -m benchmarks.scoring $(if $(PAIRS),--pairs "$(PAIRS)")

lock: setup ## rewrite environment.yml and the locks from environments/versions.toml
	@exec python environments/resolve.py

extra-%: .venv/.extra-% ## add an extra to .venv: extra-verl, extra-vllm, extra-trl, extra-docs
	@:

clean: ## remove scratch and caches; keeps .venv, runs, results and reports
	rm -rf build .pytest_cache .ruff_cache .hypothesis
	find src tests notebooks environments -name __pycache__ -prune -exec rm -rf {} +

# The first Python of 3.11 to 3.13 that runs (a pyenv shim may exist and fail) and can make environments.
.venv/bin/python:
	@for python in $(if $(PYTHON),"$(PYTHON)") python3.12 python3.11 python3.13 python3; do \
		if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12), (3, 13)])' 2>/dev/null; \
		then echo "$$python -m venv .venv"; exec "$$python" -m venv --clear .venv; fi; \
	done; \
	echo "make: found no Python 3.11, 3.12 or 3.13 with venv: install one, or name it, as in make setup PYTHON=/path/to/python3.12" >&2; exit 1

# pip installs torch, because pip's configuration selects its build (environments/README.md), and uv the rest, in
# seconds. If only pip can reach the package registry, pip installs everything.
.venv/.ready: environments/cpu.txt environments/jupyter_server_config.py environments/ipython_kernel_config.py pyproject.toml | .venv/bin/python
	.venv/bin/python -m pip install --no-compile --constraint environments/cpu.txt torch uv
	$(call install,--requirement environments/cpu.txt)
	$(call install,--editable .)
	@git status >/dev/null 2>&1; git config filter.nbstripout.clean '$(STRIPPED)' && git config filter.nbstripout.extrakeys '$(OF_A_KERNEL)' || true
	@mkdir -p .venv/etc/jupyter .venv/etc/ipython && cp environments/jupyter_server_config.py .venv/etc/jupyter/
	@cp environments/ipython_kernel_config.py .venv/etc/ipython/
	@touch $@

# `git status` comes first: files of the second in which a clone ended are compared, notebooks by a second of filter each.
# What git keeps of a notebook (.gitattributes): no outputs, no counts, nothing of the kernel that ran it. DVC, too, runs
# the filter, and without a shell.
STRIPPED = sh -c "test -x .venv/bin/nbstripout && exec .venv/bin/nbstripout --keep-id || exec cat"
OF_A_KERNEL = $(addprefix metadata.language_info.,codemirror_mode file_extension mimetype nbconvert_exporter pygments_lexer version)

.venv/.extra-%: environments/extras-%.txt .venv/.ready
	$(call install,--requirement $<)
	@touch $@

install = uv pip install --python .venv --no-deps $(1) || .venv/bin/python -m pip install --no-deps $(1)
