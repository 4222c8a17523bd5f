"""When a student is trained already, and what is written about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import chat_of
from components.captions.students.train import ADAPTER, RECORD, StudentJob, code_hash, find_job
from components.core.settings import Settings
from tests.support.student_making import make_lessons, make_plan


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    (tmp_path / "set.tsv").write_text("caption\tparaphrase_1\nIMG dog\tA dog.\n")
    return tmp_path / "set.tsv"


def _job(folder: Path, lessons: int = 4, **changes: Any) -> StudentJob:
    return StudentJob("taught", make_plan(**changes), folder / "taught", make_lessons(lessons), "base-1")


def _finish(job: StudentJob, **more: str) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / ADAPTER).write_bytes(b"weights")
    record = {"fingerprint": job.fingerprint, "base": job.base, "tasks": ["paraphrase_1"], **more}
    (job.folder / RECORD).write_text(json.dumps(record))


def test_a_student_is_trained_again_after_changes_of_the_adapter_only(tmp_path: Path) -> None:
    job = _job(tmp_path)
    assert not job.is_done()
    _finish(job)
    changing = {"lr": 0.5, "rank": 3, "epochs": 9, "batch_size": 2, "seed": 1, "held_out": 0.2, "base": "b"}
    assert not any(_job(tmp_path, **{name: value}).is_done() for name, value in changing.items())
    assert not _job(tmp_path, lessons=5).is_done()
    assert not StudentJob(job.name, job.student, job.folder, job.lessons, "base-2").is_done()
    others = {"processes": 2, "micro_batch": 1, "acceptance": 7, "merge": True, "checkpoint_every": 9}
    assert all(_job(tmp_path, **{name: value}).is_done() for name, value in others.items())
    assert job.checkpoints.folder == _job(tmp_path, processes=2).checkpoints.folder
    assert job.checkpoints.folder != _job(tmp_path, lr=0.5).checkpoints.folder
    (job.folder / ADAPTER).unlink()
    assert not job.is_done()


def test_after_changes_of_the_code_it_is_trained_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(tmp_path)
    _finish(job, code=code_hash())
    before = job.checkpoints.folder
    assert job.is_done()
    monkeypatch.setattr("components.captions.students.train.code_hash", lambda: "edited")
    assert not job.is_done()
    assert job.checkpoints.folder != before


def test_a_student_learns_the_wording_of_the_settings(settings: Settings, teacher: Path, tmp_path: Path) -> None:
    block, student = settings.synthesize, make_plan(tasks=["paraphrase_1"], teacher=[teacher])
    for prompt in ("own", "published"):
        asked = block.tasks["paraphrase_1"].model_copy(update={"prompt": prompt})
        changed = block.model_copy(update={"tasks": block.tasks | {"paraphrase_1": asked}})
        taught = settings.model_copy(update={"students": {"taught": student}, "synthesize": changed})
        (lesson,) = find_job(taught, "taught", tmp_path).lessons
        assert chat_of(lesson) == find_task("paraphrase_1").render({"caption": "IMG dog"}, prompt)


def test_the_record_holds_no_path_of_this_machine(teacher: Path, tmp_path: Path) -> None:
    job = _job(tmp_path, teacher=[teacher])
    config = {"base_model_name_or_path": str(tmp_path / "cache"), "target_modules": ["v_proj", "k_proj"], "r": 2}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    job.describe(tmp_path, 3, {"held_out": 1})
    written = json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))
    base = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert written == {"base_model_name_or_path": base, "target_modules": ["k_proj", "v_proj"], "r": 2}
    record = json.loads((tmp_path / RECORD).read_text("utf-8"))
    assert record["teacher"] == list(record["teacher_sha256"]) == ["set.tsv"]
    assert (record["examples"], record["held_out"], record["tasks"]) == (3, 1, ["paraphrase_1"])
    assert record["settings"]["lr"] == job.student.lr
    assert str(tmp_path) not in (tmp_path / RECORD).read_text("utf-8")
