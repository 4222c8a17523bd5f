"""What flows cost beyond DVC: a pipeline of the product's stages that take no time, on a real Prefect server.

python -m benchmarks.orchestration

Prints one JSON object: `noop_flow_seconds` (a process that runs the flow over an up-to-date pipeline, from its start
to its end) and `seconds_per_stage` (additional time of a stage in the flow over `dvc repro -s`, without the flow's own
start).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

import typer
from prefect.testing.utilities import prefect_test_harness

from components.core.system.stage_graph import read_graph
from tests.support.dvc_project import REPO, make_project, ran

DVC = [sys.executable, "-m", "dvc"]
FLOW = """
from prefect import flow
from flows.pipeline import bring_up_to_date
from flows.artifacts import record_state

@flow(name="benchmark")
def benchmark():
    bring_up_to_date(["compare"], parallel=1)
    record_state([])

benchmark()
"""


def product_stages() -> dict[str, list[str]]:
    """The stages that `compare` needs in the product's own pipeline, and the stages before each.

    Of a `foreach` all need as many as the one that needs fewest, as `make_project` wants it.
    """
    with chdir(REPO):
        graph = read_graph()
    needs = {name: sorted(graph.needs[name]) for name in graph.upstream(["compare"])}
    least: dict[str, int] = {}
    for name, those in needs.items():
        head = name.partition("@")[0]
        least[head] = min(least.get(head, len(those)), len(those))
    return {name: those[: least[name.partition("@")[0]]] for name, those in needs.items()}


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Seconds of a command that must succeed."""
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    return time.perf_counter() - begun


def by_dvc(stages: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Seconds of DVC alone, a call for each stage, as the flow makes them."""
    return sum(timed([*DVC, "--wait-for-lock", "repro", "-q", "-s", name], folder, environment) for name in stages)


def touch(folder: Path) -> None:
    """Put every stage out of date."""
    with (folder / "work.py").open("a") as stream:
        print("# changed", file=stream)


def main() -> None:
    """Compare a Prefect flow with plain DVC over the product's stages, each of which takes no time.

    python -m benchmarks.orchestration
    """
    from prefect.settings import PREFECT_API_URL

    stages = product_stages()
    with tempfile.TemporaryDirectory() as temporary, prefect_test_harness(server_startup_timeout=900):
        folder = Path(temporary)
        make_project(folder, stages)
        url = str(PREFECT_API_URL.value())
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPO),
            "PREFECT_API_URL": url,
            "PREFECT_LOGGING_LEVEL": "WARNING",
        }
        flow = [sys.executable, "-c", FLOW]
        # The first flow on a new server also pays for its first of everything.
        timed(flow, folder, environment)
        order = ran(folder)
        assert sorted(order) == sorted(stages), "not every stage ran once"
        noop = timed(flow, folder, environment)
        assert ran(folder) == order, "a stage ran twice"
        touch(folder)
        busy = timed(flow, folder, environment)
        touch(folder)
        alone = by_dvc(order, folder, environment)
        assert len(ran(folder)) == 3 * len(order), "the flow and DVC alone did not do the same"
    result = {
        "stages": len(stages),
        "noop_flow_seconds": round(noop, 2),
        "seconds_per_stage": round((busy - noop - alone) / len(stages), 2),
        "flow_seconds": round(busy, 1),
        "dvc_seconds": round(alone, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    typer.run(main)
