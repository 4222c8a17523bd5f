"""One throwaway Prefect server for all flow tests, and a project whose `dvc` is a stand-in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.settings import Settings
from components.core.tables.files import write_json
from components.evaluation.report.comparison import Comparison, write_csv
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell
from components.evaluation.scoring.results import Report, Result
from components.registry.decision import Decision, now

REPO = Path(__file__).parents[2]
STAGES = """
prepare:
base: prepare
embed: base
synthesize@paraphrase_1: prepare
synthesize@paraphrase_2: synthesize@paraphrase_1
validate@paraphrases: synthesize@paraphrase_2
train@paraclip: validate@paraphrases embed
train@other: validate@paraphrases
evaluate@base: base
evaluate@paraclip: train@paraclip
evaluate@other: train@other
compare: evaluate@base evaluate@paraclip evaluate@other
"""

FAKE_DVC = """
import json, os, signal, sys, time
from pathlib import Path

needs = dict(line.split(":") for line in Path("stages.txt").read_text().split("\\n") if line)
done = Path("done")
done.mkdir(exist_ok=True)

match sys.argv[1:]:
    case ["dag", "--dot"]:
        print("strict digraph {")
        for stage, upstream in needs.items():
            print(f'"{stage}";', *(f'"{need}" -> "{stage}";' for need in upstream.split()), sep="\\n")
        print("}")
    case ["status", "--json", *stages]:
        print(json.dumps({stage: ["changed"] for stage in stages if not (done / stage).exists()}))
    case ["--wait-for-lock", "repro", "--single-item", stage]:
        print(stage, file=Path("ran.txt").open("a"))
        print(f"50%\\rworking on {stage}", flush=True)
        exec(json.loads(Path("plan.json").read_text()).get(stage, ""))
        (done / stage).touch()
    case other:
        sys.exit(f"fake dvc does not know {other}")
"""


def with_server(test: Any) -> Any:
    """Mark a test that needs the Prefect server."""
    return pytest.mark.integration(pytest.mark.usefixtures("prefect_server")(test))


def decision(**changes: Any) -> Decision:
    """A decision of the gate, a promotion by default."""
    fields = {"outcome": "promoted", "model": "m", "encoder": "paraclip", "encoder_sha256": "s", "against": "base"}
    return Decision.model_validate({**fields, "tracking_uri": "u", "time": now(), **changes})


@dataclass
class Project:
    """A folder whose `dvc` is a stand-in: the record of its calls, and its faults."""

    folder: Path

    def ran(self) -> list[str]:
        """Names of the stages that ran, in order."""
        path = self.folder / "ran.txt"
        return path.read_text().splitlines() if path.exists() else []

    def plan(self, code: Mapping[str, str]) -> None:
        """Let stages (`train@paraclip`) execute code."""
        (self.folder / "plan.json").write_text(json.dumps(code))

    def fake_dvc(self, monkeypatch: pytest.MonkeyPatch, needs: str) -> None:
        """Replace DVC; `needs` has a line `stage: needs` for each stage."""
        (self.folder / "stages.txt").write_text(needs)
        (self.folder / "dvc.py").write_text(FAKE_DVC)
        self.plan({})
        monkeypatch.setenv("PYTHONPATH", str(REPO))
        for name in ("flows.stages.DVC", "components.core.system.stage_graph.READING_DVC"):
            monkeypatch.setattr(name, (sys.executable, str(self.folder / "dvc.py")))

    def score(self, *encoders: str) -> None:
        """Let encoders have results."""
        for name in encoders:
            metric = Result(value=0.5, ci95=(0.4, 0.6), higher_is_better=True)
            made = Report(encoder=name, protocol="p", data_hash="d", encoder_sha256="s", metrics={"b/m": metric})
            write_json(self.folder / "reports" / "metrics" / f"{name}.json", made.model_dump(mode="json"))

    def promote(self, _settings: Settings, dry_run: bool = False, *, challenger: bool = False) -> Decision:
        """Takes the place of the gate; it refuses and records its calls."""
        with (self.folder / "ran.txt").open("a") as stream:
            stream.write("judge\n" if dry_run else "propose\n" if challenger else "promote\n")
        return decision(outcome="refused")


def artifact(key: str) -> str:
    """Description and data of the latest artifact of a key."""
    from prefect.artifacts import Artifact

    found = Artifact.get(key)
    assert found is not None, key
    return f"{found.description} {found.data}"


def flow_runs_named(name: str) -> Any:
    """Prefect's filter for flow runs of a name."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

    return FlowRunFilter(name=FlowRunFilterName(any_=[name]))


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from prefect.testing.utilities import prefect_test_harness

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        patch.setenv("DO_NOT_TRACK", "1")
        with prefect_test_harness(server_startup_timeout=900):
            yield


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> Project:
    """A project folder, the current one; its params.yaml scores `paraclip` and `other`."""
    raw_params["methods"]["other"] = {"method": "paraclip", "train_data": "data/validated/paraclip"}
    raw_params["compare_encoders"] = ["base", "paraclip", "other"]
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    cell = Cell(Interval(0.5, 0.4, 0.6), None, True)
    comparison = Comparison(("base", "paraclip"), {"b/m": {"base": cell, "paraclip": cell}})
    write_csv(comparison, tmp_path / "reports" / "comparison.csv")
    made = Project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}")
    (tmp_path / "mlruns").mkdir()
    made.fake_dvc(monkeypatch, STAGES)
    monkeypatch.setattr("components.registry.promotion.promote", made.promote)
    return made
