"""A worker, or all processes of a stage, killed within each stage: the next run ends like an undisturbed one.

Training and captions have separate tests.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from components.core.tables.formats import write_record
from components.core.tables.records import GENERATIONS, PAIRS
from components.core.tables.written_queries import WrittenSummary
from components.core.tracking import RUN_FILE
from tests.support.held_stages import copy, held, real_pipeline, rerun, start_checkout
from tests.support.warm_stages import run_stage

Kill = Callable[[list[psutil.Process]], None]
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
STAGES = ("prepare", "base", "embed", "validate@paraphrases", "evaluate@base", "compare")
MOMENTS = {
    "prepare": "data/evaluation",
    "base": "step-00000004",
    "validate-paraphrases": "data/quarantine/paraphrases/summary.json",
    "evaluate-base": "reports/metrics/base.json",
    "compare": "reports/comparison.html",
}
"""Stage -> the output that it is about to put in place when it is killed; the earlier outputs exist."""
_TIME, _ID = rb"20\d\d-?\d\d-?\d\d[T ]\d\d:?\d\d:?\d\d(\.\d+)?Z?", rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CHANGING = re.compile(_TIME + rb"|" + _ID)
"""Times and random ids, which Great Expectations writes into its pages and their names."""
SETTINGS: dict[str, dict[str, Any]] = {
    "dataset": {"name": "killed"},
    "prepare": {"counts": {"train": 60, "val": 8, "test": 24}},
    "train": {"checkpoint_dir": "state/train", "checkpoint_every": 2},
    "validate": {"check_scene_facts": False, "min_similarity": -1, "min_accepted_share": 0, "max_echo_share": 1},
    "evaluate": {"benchmarks": ["paraphrased_retrieval", "retrieval"], "top_k": [1, 5, 10], "bootstrap": 20},
    "compare": {"gallery_queries": 2},
    "promote": {"guards": {}, "require_benchmarks": ["paraphrased_retrieval", "retrieval"]},
}


def _write_params(folder: Path, raw: dict[str, Any]) -> None:
    for block, changes in SETTINGS.items():
        raw[block] |= changes
    raw["base"]["source"] = "scratch"
    raw["base"]["scratch"] |= {"epochs": 2, "batch_size": 16, "warmup_steps": 1}
    raw["compare_encoders"] = ["base"]
    (folder / "params.yaml").write_text(yaml.safe_dump(raw), "utf-8")


def _write_answers(folder: Path) -> None:
    """Possible answers of a language model to the captions."""
    pairs = PAIRS.read(folder / "data/pairs/train.parquet", ["id", "caption"]).to_pylist()
    absent = dict.fromkeys(("reason", "other_id", "other_source", "verdict", "written_by"), [None] * len(pairs))
    source = [pair["caption"] for pair in pairs]
    for task in ("paraphrase_1", "paraphrase_2"):
        text = [f"somebody drew this thing for us: {caption}" for caption in source]
        columns = {"id": [pair["id"] for pair in pairs], "source": source, "text": text, "sample": [0] * len(pairs)}
        columns |= {"key": ["key"] * len(pairs), "accepted": [True] * len(pairs)}
        GENERATIONS.write(folder / f"data/captions/paraphrases/{task}.parquet", columns | absent)
        source = text


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage ran undisturbed, and MLflow's store."""
    folder = tmp_path_factory.mktemp("calm")
    _write_params(folder, yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text("utf-8")))
    # Stage `test_set` writes this where no model writes test queries.
    write_record(folder / "data/test_set/summary.json", WrittenSummary())
    for stage in STAGES:
        if stage == "validate@paraphrases":
            _write_answers(folder)
        command = real_pipeline(stage)["stages"].popitem()[1]["cmd"].split()
        ended = run_stage(folder, command[2], *command[3:], environment={"MLFLOW_TRACKING_URI": _store(folder)})
        assert ended.code == 0, ended.errors
    return folder


def _store(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


def _kill_worker(family: list[psutil.Process]) -> None:
    """Kill only the process group of the flow run; the supervisor is in another one."""
    os.killpg(family[0].pid, signal.SIGKILL)


def _kill_all(family: list[psutil.Process]) -> None:
    """Kill everything, as when the machine stops: no process tidies up, and DVC's locks remain."""
    # All are suspended first: a DVC whose stage dies a moment earlier begins to remove its locks.
    for process in family:
        process.suspend()
    for process in reversed(family):
        process.kill()


# The supervisor does the same for every stage.
@pytest.mark.parametrize(("stage", "kill"), [("prepare", _kill_worker), *((stage, _kill_all) for stage in MOMENTS)])
def test_a_killed_stage_ends_like_an_undisturbed_one(
    stage: str, kill: Kill, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", _store(calm))
    pipeline = real_pipeline(*STAGES)
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    start_checkout(tmp_path)
    # The comparison also reads the encoders' sidecars, which dvc.yaml does not list: their results change with them.
    unlisted = ["models"] if stage == "compare" else []
    for needed in ["params.yaml", *unlisted, *pipeline["stages"][stage]["deps"]]:
        copy(calm / needed, tmp_path / needed)
    with held(tmp_path, stage, MOMENTS[stage]) as family:
        kill(family)
    rerun(tmp_path, stage)
    found, expected = (_outputs(folder, pipeline["stages"][stage]) for folder in (tmp_path, calm))
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert _litter(tmp_path) == []


def _outputs(folder: Path, stage: dict[str, Any]) -> dict[str, bytes]:
    """Content of all files that a stage writes, without the name of its MLflow run, times and random ids."""
    found: dict[str, bytes] = {}
    for out in [*stage["outs"], *(name for metric in stage.get("metrics", []) for name in metric)]:
        files = [folder / out] if (folder / out).is_file() else sorted((folder / out).rglob("*"))
        for file in files:
            if file.is_file() and file.name != RUN_FILE:
                name = CHANGING.sub(b"", str(file.relative_to(folder)).encode()).decode()
                found[name] = CHANGING.sub(b"", file.read_bytes())
    return found


def _litter(folder: Path) -> list[Path]:
    """Unfinished files of killed writers."""
    found = [path for room in ("data", "models", "reports") for path in (folder / room).rglob(".*")]
    return [path for path in found if path.name != ".gitignore"]
