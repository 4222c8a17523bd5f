"""The train flow runs the right stages in order, stops at the first failure, and leaves its artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.commands import CommandError
from flows.stages import needed_stages
from flows.train import train_paraclip

REPO = Path(__file__).parents[2]
ORDER = [
    "prepare",
    "base",
    "embed",
    "synthesize@paraphrase_1",
    "synthesize@paraphrase_2",
    "validate",
    "train@paraclip",
    "evaluate@base",
    "evaluate@paraclip",
]


@pytest.mark.usefixtures("project")
def test_other_methods_are_not_needed() -> None:
    assert needed_stages(["evaluate@paraclip", "evaluate@base"]) == ORDER
    assert needed_stages(["base"]) == ["prepare", "base"]


@pytest.mark.usefixtures("project")
def test_unknown_stage_is_named() -> None:
    with pytest.raises(CommandError, match="evaluate@nothing"):
        needed_stages(["evaluate@nothing"])


@pytest.mark.integration
def test_real_pipeline_has_these_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    tasks = [f"synthesize@{task}" for task in yaml.safe_load(Path("params.yaml").read_text())["synthesize"]["tasks"]]
    first, last = ORDER.index("synthesize@paraphrase_1"), ORDER.index("synthesize@paraphrase_2")
    assert set(ORDER[first : last + 1]) < set(tasks)
    # Other methods' stages are not needed; the answers to all prompt tasks are validated together.
    expected = [*ORDER[:first], "students", *tasks, *ORDER[last + 1 :]]
    assert needed_stages(["evaluate@paraclip", "evaluate@base"]) == expected


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_stages_run_in_order_and_leave_artifacts(project: Any) -> None:
    from prefect.artifacts import Artifact

    assert train_paraclip.name == "train-paraclip"
    train_paraclip(method="paraclip")
    assert project.ran() == [*ORDER, "compare", "promote"]
    table, decision = Artifact.get("results-table"), Artifact.get("promotion-decision")
    assert table is not None
    assert "0.5000 [0.4000, 0.6000]" in str(table.data)
    assert decision is not None
    assert "# m: refused" in str(decision.data)


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_failure_repeats_the_last_lines_and_stops(project: Any) -> None:
    project.break_stage("validate")
    with pytest.raises(CommandError) as failure:
        train_paraclip(method="paraclip")
    assert "stage validate failed with exit code 1" in str(failure.value)
    assert "working on validate" in str(failure.value)
    assert "error: data/pairs/train.parquet is missing" in str(failure.value)
    assert project.ran() == ORDER[: ORDER.index("validate") + 1]


def test_every_training_flow_has_its_deployments_and_a_known_method() -> None:
    import flows.train

    known = yaml.safe_load((REPO / "params.yaml").read_text())["methods"]
    deployments = yaml.safe_load((REPO / "prefect.yaml").read_text())["deployments"]
    by_flow: dict[str, list[dict[str, Any]]] = {}
    for entry in deployments:
        file, _, name = entry["entrypoint"].partition(":")
        if file == "flows/train.py":
            by_flow.setdefault(name, []).append(entry)
    assert "train_paraclip" in by_flow
    for name, entries in by_flow.items():
        assert getattr(flows.train, name).name == name.replace("_", "-")
        places = {(entry["name"], entry["work_pool"]["name"]) for entry in entries}
        assert places == {("local", "local"), ("gpu", "gpu")}
        assert {entry["parameters"]["method"] for entry in entries} <= set(known)
