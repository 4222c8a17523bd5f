"""Real DVC: methods side by side and two flows in one checkout, without lock errors, lost entries or double work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from components.core.system.stage_graph import outdated, read_graph
from tests.support.dvc_project import REPO, make_project, ran

METHODS = ("a", "b", "c", "d")
STAGES = {
    "prepare": [],
    **{f"train@{name}": ["prepare"] for name in METHODS},
    **{f"evaluate@{name}": [f"train@{name}"] for name in METHODS},
    "compare": [f"evaluate@{name}" for name in METHODS],
}
FLOW = """
from prefect import flow
import flows.stages
from flows.pipeline import bring_up_to_date
flows.stages.PAUSE = 0.5
flow(name="both")(bring_up_to_date)(["compare"])
"""


@pytest.mark.integration
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("prefect_server")
def test_two_flows_bring_the_same_pipeline_up_to_date_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL

    make_project(tmp_path, STAGES, seconds=1.0)
    monkeypatch.chdir(tmp_path)
    graph = read_graph()
    assert set(graph.upstream(["compare"])) == set(STAGES)
    environment = {**os.environ, "PYTHONPATH": str(REPO), "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    command = [sys.executable, "-c", FLOW]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    two = [subprocess.Popen(command, env=environment, text=True, **pipes) for _ in range(2)]
    output = [flow.communicate(timeout=1500)[0] for flow in two]
    assert [flow.returncode for flow in two] == [0, 0], "\n".join(output)
    assert Counter(ran(tmp_path)) == dict.fromkeys(STAGES, 1)
    assert set(yaml.safe_load((tmp_path / "dvc.lock").read_text())["stages"]) == set(STAGES)
    assert outdated(graph, graph.upstream(["compare"])) == set()
    (tmp_path / "out" / "train@b.txt").unlink()
    assert outdated(graph, graph.upstream(["compare"])) == {"train@b", "evaluate@b", "compare"}
