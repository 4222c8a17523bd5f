"""The stage `students`, from lessons to adapters that engines can use, and the students that are here."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from components.captions.students import lessons as lessons_module
from components.captions.students import students as student
from components.captions.students.train import ADAPTER, RECORD, find_job
from components.core.settings import Settings
from components.core.system.profiles import settings_with
from components.core.tables.files import file_hash
from components.core.tracking import make_client
from components.encoders.language_models.language_model import load_language_model
from tests.support.student_project import CAPTIONS, good, make_project, plain_probes, rewriter
from tests.support.tiny_language_model import save_tiny_language_model

REPO = Path(__file__).parents[4]
ASSETS = Path("components/captions/assets")
SMALL = {"tasks": ["paraphrase_1"], "rank": 2, "epochs": 2, "batch_size": 4, "lr": 0.01, "acceptance": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with lessons by hand and a base; there is one for all tests."""
    made = tmp_path_factory.mktemp("project")
    save_tiny_language_model(made / "base")
    rows = [f"{caption} again\t{good([caption])}" for caption in CAPTIONS * 2]
    (made / "set.tsv").write_text("\n".join(["caption\tparaphrase_1", *rows]) + "\n", encoding="utf-8")
    return made


@pytest.fixture(autouse=True)
def _here(folder: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    track_in(folder)
    monkeypatch.setattr(lessons_module, "find_probes", lambda *_: plain_probes())


def _project(raw_params: dict[str, Any], **students: dict[str, Any]) -> Settings:
    made = {name: SMALL | {"base": "base"} | given for name, given in students.items()}
    return make_project(Path(), raw_params, made)


def _main(*names: str, output: Path = student.OUTPUT, profile: str | None = None, lessons_only: bool = False) -> None:
    student.main(list(names) or None, output, profile, lessons_only)


@pytest.fixture
def trained(raw_params: dict[str, Any]) -> Path:
    """The folder of a student that was trained, once for all tests."""
    _project(raw_params, taught={"teacher": ["set.tsv"], "merge": True})
    _main()
    return student.OUTPUT / "taught"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_a_student_is_trained_once_to_adapter_and_record(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {path.name for path in trained.iterdir()} == {ADAPTER, "adapter_config.json", RECORD, "merged"}
    record = _read(trained / RECORD)
    assert record["examples"] + record["held_out"] == 2 * len(CAPTIONS)
    assert record["held_out_loss"]["after"] < record["held_out_loss"]["before"]
    assert set(record["acceptance"]["paraphrase_1"]) == {"before", "after"}
    assert not list(Path("state/students/taught").glob("checkpoints-*"))
    before = (trained / ADAPTER).stat().st_mtime_ns
    _main()
    assert "taught: already trained on these lessons" in capsys.readouterr().out
    assert (trained / ADAPTER).stat().st_mtime_ns == before


def test_a_trained_student_answers_and_its_run_holds_steps_and_examinations(trained: Path) -> None:
    ids = torch.arange(3, 40).unsqueeze(0)
    base, adapted, merged = (
        load_language_model(adapter, torch.float32, str(model)).model(ids).logits
        for adapter, model in ((None, "base"), (trained, "base"), (None, trained / "merged"))
    )
    # Merged weights are rounded to bfloat16.
    assert (merged - adapted).norm() < 0.2 * (adapted - base).norm()
    client, record = make_client(), _read(trained / RECORD)
    run = client.get_run(record["mlflow_run"])
    assert (run.info.status, run.data.tags["stage"]) == ("FINISHED", "student")
    assert len(run.data.tags["input.set.sha256"]) == 64
    assert run.data.params["student.rank"] == "2"
    steps = 2 * math.ceil(record["examples"] / 4)
    assert [one.step for one in client.get_metric_history(run.info.run_id, "train/loss")] == list(range(1, steps + 1))
    for metric in ("held_out/loss", "acceptance/paraphrase_1"):
        assert [one.step for one in client.get_metric_history(run.info.run_id, metric)] == [0, steps]
    artifacts = {artifact.path for artifact in client.list_artifacts(run.info.run_id, "taught")}
    assert artifacts >= {f"taught/{ADAPTER}", f"taught/{RECORD}"}


def test_a_model_teaches_through_the_store(raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = rewriter(good)
    monkeypatch.setattr(lessons_module, "make_engine", lambda _settings, name: {"teacher": engine}[name])
    given = {"teacher": "teacher", "captions": 8, "held_out": 0.2, "acceptance": 0}
    settings = _project(raw_params, pupil=given, other=given | {"seed": 3})
    _main("pupil", lessons_only=True)
    assert not (student.OUTPUT / "pupil").exists()
    assert len(find_job(settings, "pupil", student.OUTPUT).lessons) == 8
    assert len(engine.asked) == 8

    _main("pupil", "other")
    assert len(engine.asked) == 8
    record = _read(student.OUTPUT / "pupil" / RECORD)
    assert (record["teacher"], record["examples"], record["held_out"]) == ("teacher", 7, 1)
    assert "acceptance" not in record
    assert {path.name for path in student.OUTPUT.iterdir()} >= {"pupil", "other"}


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("nobody", {}, "no block students.nobody"),
        ("taught", {"teacher": ["lost.tsv"]}, "lost.tsv is missing"),
        ("taught", {"base": "lost/base"}, "lost/base"),
        ("taught", {"held_out": 0.001}, "leave none to hold out: raise held_out"),
        ("taught", {"tasks": ["paraphrase_9"]}, "'paraphrase_9' is unknown"),
    ],
)
def test_a_fault_of_the_settings_is_one_line(
    name: str, given: dict[str, Any], fault: str, raw_params: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _project(raw_params, taught={"teacher": ["set.tsv"], "lr": 0.5} | given)
    with pytest.raises(SystemExit, match="1"):
        _main(name)
    (error,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert fault in error


@pytest.mark.slow
def test_several_processes_are_run_by_torchrun(raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(student, "__spec__", type("Spec", (), {"name": "components.captions.students.students"}))
    monkeypatch.setattr("os.execv", lambda _program, arguments: started.append(arguments))
    by_hand = {"teacher": ["set.tsv"], "processes": 2, "lr": 0.02}
    _project(raw_params, one=by_hand, two=by_hand)
    _main(output=Path("elsewhere"))
    launcher = [sys.executable, "-m", "components.core.compute.distributed", "--standalone", "--nproc-per-node", "2"]
    module = [
        "-m",
        "components.captions.students.students",
        "--student",
        "one",
        "--student",
        "two",
        "--output",
        "elsewhere",
    ]
    assert started == [launcher + module]
    assert not Path("elsewhere").exists()

    _project(raw_params, one=by_hand, two=by_hand | {"processes": 4})
    with pytest.raises(SystemExit):
        _main()
    assert len(started) == 1


@pytest.mark.parametrize(
    ("uses", "trains", "students"),
    [
        ("student", "student", ("student", "student_edits", "judge", "parts")),
        ("flickr8k", "student-photos", ("student",)),
    ],
)
def test_shipped_students_were_taught_every_task_of_their_profiles(
    uses: str, trains: str, students: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPO)
    block, taught = settings_with(uses).synthesize, settings_with(trains)
    folders = {name: Path(block.llms[name]["adapter"]).name for name in students}
    assert block.llms.keys() == folders.keys()
    for name, task in block.tasks.items():
        assert name in taught.students[folders[block.model_of(task)]].tasks, name
    for name in folders.values():
        record = _read(ASSETS / name / RECORD)
        assert record["held_out_loss"]["after"] < record["held_out_loss"]["before"]
        files = [Path(file) for file in taught.students[name].teacher]
        assert record["teacher_sha256"].items() <= {file.name: file_hash(file) for file in files}.items()
        assert "fingerprint" not in record or find_job(taught, name, ASSETS).is_done(), "run `make student`"
