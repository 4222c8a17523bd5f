"""The lines of the `sh` blocks of README and docs run as written, on a small folder of pictures, or in another test."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import make_checkout, newcomer
from tests.support.coloured_squares import shown_squares, write_folder
from tests.support.documented import PAGES, REPO, block_lines
from tests.support.fake_llm_process import fake_llm
from tests.support.mlflow_servers import running
from tests.support.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

ELSEWHERE = {
    "make demo": ".ci/toy-pipeline",
    "make test": ".ci/run",
    "make claims": ".ci/toy-pipeline",
    "make .venv/.ready": ".ci/run",
    "git clone": ".ci/toy-pipeline",
    "python -m research.claims.claims": ".ci/toy-pipeline",
    "for seed in research/papers/results": "tests/integration/test_stored_results.py",
    "cliptune profile apply claims": "tests/integration/test_stored_results.py",
    "xdg-open": "tests/integration/test_in_browser.py",
    "cliptune evaluate --encoder": "tests/unit/cli/commands/test_evaluate.py",
    "cliptune table": "tests/unit/cli/commands/test_evaluate.py",
    "cliptune answers compare": "tests/unit/cli/commands/test_compare_writers.py",
    "cliptune mix tune": "tests/unit/training/tuning/test_mixes.py",
    "cliptune tune --trials": "tests/unit/training/tuning/test_entry.py",
    "cliptune init data/shop --text": "tests/unit/cli/commands/test_import.py",
    "cliptune init data/shop --index": "tests/integration/test_databases_to_product.py",
    "sbatch": "tests/integration/test_slurm.py",
    "sky launch": "tests/unit/cli/test_node.py",
    "cliptune rollback": "tests/unit/registry/test_champion.py",
    "cliptune new method mine": "tests/integration/test_newcomer.py",
    "dvc --wait-for-lock repro evaluate@mine": "tests/integration/test_newcomer.py",
    "cliptune init data/catalogue": "tests/integration/test_newcomer.py",
    "cliptune profile apply catalogue": "tests/integration/test_newcomer.py",
    "cliptune init data/photographs --captions": "tests/unit/captions/test_caption_folder.py",
    "python -m components.captions.synthesize": "tests/unit/captions/generating/test_batches.py",
    "cliptune answers import --batch": "tests/unit/captions/generating/test_batches.py",
    "cliptune caption": "tests/unit/cli/commands/test_import.py",
    "cliptune profile apply flickr8k": "tests/integration/test_photographs.py",
    "cliptune profile apply cub": "tests/pipeline/test_paper_recipes.py",
    "dvc --wait-for-lock repro validate@differences_cub": "tests/pipeline/test_paper_recipes.py",
    "python docs/examples": "tests/pipeline/test_examples.py",
    "make stack": "tests/faults/test_loopback_only.py",
    "prefect deployment run": "tests/flows/test_train_flow.py",
    "torchrun --nnodes 2": "tests/unit/training/test_several_machines.py",
}
"""Beginning of a line -> its test: it needs hours, downloads, a data set, machines or a stack of servers."""
SERVERS = ("cliptune serve", "cliptune explore", "cliptune review")
WITHIN_S = 900.0


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files of the working tree in a new repository, with pictures and the rates of a machine."""
    folder = tmp_path_factory.mktemp("newcomer") / "cliptune"
    make_checkout(folder)
    squares = shown_squares()
    write_folder(folder / "data/shop", squares)
    for place, name in enumerate(("photographs", "new")):
        write_folder(folder.parent / name, dict(list(squares.items())[place * 8 : place * 8 + 8]))
    rates = re.search(r"^```yaml\n(machine:.*?)^```", (REPO / "docs/scale.md").read_text("utf-8"), re.M | re.S)
    assert rates is not None
    (folder / "cluster.yaml").write_text(rates[1])
    return folder


@pytest.fixture(scope="module")
def environment(checkout: Path) -> dict[str, str]:
    return newcomer(checkout) | {"CLIPTUNE_SERVE_TOKEN": "a-token-for-one-test-only"}


def _lines() -> list[str]:
    """Every command once: first those that lead to a champion and an index, which the other pages need."""
    first = [REPO / f"docs/{page}.md" for page in ("own_data", "promote", "image_index")]
    pages = [*first, *(page for page in PAGES if page not in first)]
    found = (line for page in pages for line in block_lines(page.read_text("utf-8")))
    commands = (re.sub(r"\s+#\s.*$", "", line).strip() for line in found)
    return [line for line in dict.fromkeys(commands) if line and not line.startswith("#")]


LINES = _lines()
BLOCKS = [
    block for page in PAGES for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
]
_SERVED = ":8080/"
"""In the blocks that ask a server, which run beside `cliptune serve`."""
RUN_HERE = [line for line in LINES if not line.startswith((*ELSEWHERE, "curl"))]


def test_every_exception_is_documented_and_has_its_test() -> None:
    assert [start for start in ELSEWHERE if not any(line.startswith(start) for line in LINES)] == []
    assert [test for test in ELSEWHERE.values() if not (REPO / test).exists()] == []


@pytest.fixture(scope="module")
def llm() -> Iterator[str]:
    """The address of a server that rewords every caption immediately, and accepts what it wrote."""
    with fake_llm() as server:
        server.control("set", instead={"Respond with": ["Yes", "stop"]})
        yield server.url


def _make_small(checkout: Path, llm: str) -> None:
    """Change the new profile: OpenAI's weights are not available here, and no language model is downloaded."""
    path = checkout / "infra/profiles/shop.yaml"
    profile = yaml.safe_load(path.read_text("utf-8"))
    scratch = {"lr": 1e-9, "epochs": 1, "batch_size": 16, "warmup_steps": 1, "attribute_loss_weight": 0}
    rules = {"check_scene_facts": False, "measure_similarity": False, "min_new_words": 0, "min_accepted_share": 0}
    rules["keep_numbers"] = False
    profile |= {
        "base": {"source": "scratch", "model": "cliptune-tiny", "scratch": scratch},
        "validate": rules,
        # Every paraphrase is another text that says nothing.
        "methods": {"paraclip": {"terms": ["l1"], "epochs": 12, "batch_size": 16, "warmup_steps": 0, "lr": 0.003}},
    }
    profile["promote"] |= {"metric": "retrieval/t2i_recall_at_5"}
    profile["evaluate"] = {"benchmarks": ["paraphrased_retrieval", "retrieval"]}
    profile["test_set"] = {"llm": "fake", "min_accepted_share": 0.01}
    models = {"fake": {"engine": "server", "urls": [llm], "model": "fake"}}
    profile["synthesize"] |= {"max_captions": 254, "llms": models, "default_llm": "fake", "cached_answers": None}
    path.write_text(yaml.safe_dump(profile))


def _run(command: str, checkout: Path, environment: dict[str, str]) -> None:
    output = checkout / "output.txt"
    with output.open("w") as stream:
        code = subprocess.call(
            ["bash", "-c", command], cwd=checkout, env=environment, stdout=stream, stderr=stream, timeout=WITHIN_S
        )
    assert code == 0, output.read_text()


def _run_python(block: str, checkout: Path, environment: dict[str, str]) -> None:
    (checkout / "block.py").write_text(block)
    _run("python block.py", checkout, environment)


def _serve(command: str, checkout: Path, environment: dict[str, str]) -> None:
    """Start the server of the line on a free port, and send it the requests of the pages."""
    port = free_ports(1)[0]
    # This project has only one version.
    local = f"{command.replace('text-encoder/3', 'text-encoder/1')} --host 127.0.0.1 --port {port}"
    page = f"http://127.0.0.1:{port}/{'health' if 'serve' in command else ''}"
    with running(["bash", "-c", local], page, checkout, environment):
        if command == "cliptune serve":
            for line in (line for line in LINES if line.startswith("curl")):
                _run(line.replace("curl", "curl --fail").replace(":8080", f":{port}"), checkout, environment)
            for block in (block for block in BLOCKS if _SERVED in block):
                _run_python(block.replace(_SERVED, f":{port}/"), checkout, environment)


@pytest.mark.parametrize("line", RUN_HERE)
def test_a_line_runs(line: str, checkout: Path, environment: dict[str, str], llm: str) -> None:
    if any(start in line for start in SERVERS) and "--summary" not in line.split():
        _serve(line, checkout, environment)
    else:
        _run(line, checkout, environment)
    if line.startswith("cliptune init data/shop --llm"):
        _make_small(checkout, llm)


@pytest.mark.parametrize("block", [block for block in BLOCKS if _SERVED not in block and "fiftyone" not in block])
def test_a_python_block_runs(block: str, checkout: Path, environment: dict[str, str]) -> None:
    _run_python(block, checkout, environment)
