"""The lines of the pages' `sh` blocks run as they are written, on a small folder of pictures, or in another test."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import yaml

from tests.integration.conftest import free_ports
from tests.support.coloured_squares import shown_squares, write_folder
from tests.support.documented import PAGES, REPO, block_lines
from tests.support.fake_llm_process import fake_llm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

ELSEWHERE = {
    "make demo": ".ci/toy-pipeline",
    "make test": ".ci/run",
    "make claims": ".ci/toy-pipeline",
    "make .venv/.ready": ".ci/run",
    "git clone": ".ci/toy-pipeline",
    "python -m components.study.claims": ".ci/toy-pipeline",
    "xdg-open": "tests/integration/test_report_in_browser.py",
    "cliptune evaluate --encoder": "tests/unit/cli/test_evaluate.py",
    "cliptune table": "tests/unit/cli/test_evaluate.py",
    "cliptune votes --export": "tests/unit/cli/test_explore.py",
    "cliptune mix tune": "tests/unit/study/test_search.py",
    "cliptune profile apply flickr8k": "tests/integration/test_photographs.py",
    "python docs/examples": "tests/pipeline/test_examples.py",
    "make stack": "tests/faults/test_loopback_only.py",
    "prefect deployment run": "tests/flows/test_train_flow.py",
    "python -m benchmarks.scale": "tests/benchmarks/test_scale_benchmark.py",
}
"""Beginning of a line -> its test: it needs hours, weights of the network, a data set, votes or a stack of servers."""
SERVERS = ("cliptune serve", "cliptune explore")
WITHIN_S = 900.0


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files as they are now, in a repository of their own, with pictures and a machine's rates beside."""
    folder = tmp_path_factory.mktemp("newcomer") / "cliptune"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, folder / name)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
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
    """A newcomer's: the programs of this environment, a home of their own, no network."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(checkout), "HOME": str(checkout.parent), "HF_HUB_OFFLINE": "1"}
    own |= {"MLFLOW_TRACKING_URI": f"sqlite:///{checkout}/mlruns/mlflow.db", "GX_ANALYTICS_ENABLED": "false"}
    # More threads than cores, with other tests beside, wait for each other most of the time.
    own |= {"OMP_NUM_THREADS": "1"}
    return {**os.environ, **own, "DO_NOT_TRACK": "1", "CLIPTUNE_SERVE_TOKEN": "a-token-for-one-test-alone"}


def _lines() -> list[str]:
    """What is to run, each once: first the way to a champion, which the other pages take for granted, and an index."""
    first = [REPO / "docs/own_data.md", REPO / "docs/image_index.md"]
    pages = [*first, *(page for page in PAGES if page not in first)]
    found = (line for page in pages for line in block_lines(page.read_text("utf-8")))
    commands = (re.sub(r"\s+#\s.*$", "", line).strip() for line in found)
    return [line for line in dict.fromkeys(commands) if line and not line.startswith("#")]


LINES = _lines()
HERE = [line for line in LINES if not line.startswith(tuple(ELSEWHERE)) and not line.startswith("curl")]


def test_what_runs_elsewhere_is_documented_and_has_its_test() -> None:
    assert [start for start in ELSEWHERE if not any(line.startswith(start) for line in LINES)] == []
    assert [test for test in ELSEWHERE.values() if not (REPO / test).exists()] == []


@pytest.fixture(scope="module")
def llm() -> Iterator[str]:
    """The address of a server that rewords every caption at once."""
    with fake_llm() as server:
        yield server.url


def _make_small(checkout: Path, llm: str) -> None:
    """In the imported profile: OpenAI's weights are not to be had here, and no language model need be fetched."""
    path = checkout / "infra/profiles/shop.yaml"
    profile = yaml.safe_load(path.read_text("utf-8"))
    del profile["over"]
    profile |= {
        "base": {
            "source": "scratch",
            "model": "cliptune-tiny",
            "scratch": {"lr": 1e-9, "epochs": 1, "batch_size": 16, "warmup_steps": 1, "attribute_loss_weight": 0},
        },
        "validate": {
            "check_scene_facts": False,
            "measure_similarity": False,
            "min_new_words": 0,
            "min_accepted_share": 0,
        },
        "methods": {"paraclip": {"epochs": 12, "batch_size": 16, "warmup_steps": 0, "lr": 0.003}},
    }
    profile["promote"]["guards"]["zero_shot/top1"] = None
    profile["promote"]["margin"] = {"rule": "min_gain"}
    models = {"fake": {"engine": "server", "urls": [llm], "model": "fake"}}
    profile["synthesize"] |= {"max_captions": 254, "llms": models, "default_llm": "fake", "cached_answers": None}
    path.write_text(yaml.safe_dump(profile))


def _run(command: str, checkout: Path, environment: dict[str, str]) -> None:
    said = checkout / "said.txt"
    with said.open("w") as stream:
        code = subprocess.call(
            ["bash", "-c", command], cwd=checkout, env=environment, stdout=stream, stderr=stream, timeout=WITHIN_S
        )
    assert code == 0, said.read_text()


def _serve(command: str, checkout: Path, environment: dict[str, str]) -> None:
    """Start what the line starts, on a free port of this machine, and ask it as the pages do."""
    port = free_ports(1)[0]
    # Here nothing was promoted before.
    here = f"{command.replace('text-encoder/3', 'text-encoder/1')} --host 127.0.0.1 --port {port}"
    with (checkout / "said.txt").open("w+") as said:
        started = subprocess.Popen(
            ["bash", "-c", here], cwd=checkout, env=environment, stderr=said, start_new_session=True
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/{'health' if 'serve' in command else ''}", started)
            if command == "cliptune serve":
                for line in (line for line in LINES if line.startswith("curl")):
                    _run(line.replace("curl", "curl --fail").replace(":8080", f":{port}"), checkout, environment)
        except AssertionError as error:
            said.seek(0)
            raise AssertionError(f"{error}: {said.read()}") from None
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def _wait_for(url: str, started: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        assert started.poll() is None, "ended"
        with suppress(httpx.TransportError):
            assert httpx.get(url, trust_env=False).status_code == 200
            return
        time.sleep(0.2)
    raise AssertionError(f"{url} does not answer")


@pytest.mark.parametrize("line", HERE)
def test_a_line_runs(line: str, checkout: Path, environment: dict[str, str], llm: str) -> None:
    if any(start in line for start in SERVERS) and "--export" not in line:
        _serve(line, checkout, environment)
    else:
        _run(line, checkout, environment)
    if line == "cliptune init data/shop":
        _make_small(checkout, llm)
