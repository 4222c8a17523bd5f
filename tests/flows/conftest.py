"""One throwaway Prefect server for all flow tests, and a project whose `dvc` is a stand-in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.benchmarks.scoring.bootstrap import Interval
from components.core.settings import Settings
from components.core.system import stage_graph
from components.evaluation.results import Report, Result
from components.registry.decision import Decision, now
from components.report.comparison import Cell, Comparison, write_csv

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


def log(text):
    with Path("ran.txt").open("a") as stream:
        print(text, file=stream)


match sys.argv[1:]:
    case ["stage", "list", "--name-only"]:
        print("\\n".join(needs))
    case ["dag", "--dot"]:
        print("strict digraph {")
        for stage, upstream in needs.items():
            print(f'"{stage}";')
            for need in upstream.split():
                print(f'"{need}" -> "{stage}";')
        print("}")
    case ["--wait-for-lock", "status", "--json", *stages]:
        if Path("busy.txt").exists():
            sys.exit("ERROR: 'models/base' is busy, it is being blocked by: (PID 1): dvc repro")
        print(json.dumps({stage: ["changed"] for stage in stages if not (done / stage).exists()}))
    case ["--wait-for-lock", "repro", "--single-item", stage]:
        log(stage)
        print(f"50%\\rworking on {stage}", flush=True)
        if Path("plan.json").exists():
            exec(json.loads(Path("plan.json").read_text()).get(stage, ""))
        (done / stage).touch()
    case other:
        sys.exit(f"fake dvc does not know {other}")
"""


def _stand_in(_settings: Settings, dry_run: bool = False, *, challenger: bool = False) -> Decision:
    """Takes the place of the gate; it refuses and records its calls."""
    with Path("ran.txt").open("a") as stream:
        stream.write("judge\n" if dry_run else "propose\n" if challenger else "promote\n")
    made: dict[str, Any] = {
        "outcome": "refused",
        "model": "m",
        "encoder": "paraclip",
        "encoder_sha256": "s",
        "against": "base",
    }
    return Decision(**made, tracking_uri="u", time=now())


@dataclass
class Project:
    """The record of the stand-ins, and their faults."""

    folder: Path

    def ran(self) -> list[str]:
        """Names of the stages that ran, in order."""
        path = self.folder / "ran.txt"
        return path.read_text().split() if path.exists() else []

    def plan(self, **stages: str) -> None:
        """Let stages do something: `train__paraclip="..."` is code for train@paraclip."""
        named = {name.replace("__", "@"): code for name, code in stages.items()}
        (self.folder / "plan.json").write_text(json.dumps(named))

    def score(self, *encoders: str) -> None:
        """Let encoders have results."""
        for name in encoders:
            metric = Result(value=0.5, ci95=(0.4, 0.6), higher_is_better=True)
            made = Report(encoder=name, protocol="p", data_hash="d", encoder_sha256="s", metrics={"b/m": metric})
            path = self.folder / "reports" / "metrics" / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made.model_dump_json())


def artifact(key: str) -> str:
    """Description and data of the latest artifact of a key."""
    from prefect.artifacts import Artifact

    found = Artifact.get(key)
    assert found is not None, key
    return f"{found.description} {found.data}"


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server with an empty database."""
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
    import flows.stages

    raw_params["methods"]["other"] = {"method": "paraclip", "train_data": "data/validated/paraclip"}
    raw_params["compare_encoders"] = ["base", "paraclip", "other"]
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))

    (tmp_path / "stages.txt").write_text(STAGES)
    (tmp_path / "dvc.py").write_text(FAKE_DVC)
    cell = Cell(Interval(0.5, 0.4, 0.6), None, True)
    comparison = Comparison(("base", "paraclip"), {"b/m": {"base": cell, "paraclip": cell}})
    write_csv(comparison, tmp_path / "reports" / "comparison.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    for module in (flows.stages, stage_graph):
        monkeypatch.setattr(module, "DVC", (sys.executable, str(tmp_path / "dvc.py")))
    monkeypatch.setattr("components.registry.promotion.promote", _stand_in)
    return Project(tmp_path)
