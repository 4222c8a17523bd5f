"""`cliptune clean` removes the kinds that it is given after a question, and never files of the user."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from components.registry.reviews import Reviews
from tests.support.dvc_project import make_project
from tests.support.store_rows import old_store
from tests.support.typed import cliptune

USERS = ("data/shop/IMG_1.jpg", "models/writer/model.safetensors", "data/benchmarks/mine/x",
         "state/params-edited-1.yaml", "state/generations.db.backup", "state/votes.db", "out/mine.txt")  # fmt: skip
WRITTEN = {
    "outputs": ("out/a.txt", "out/b.txt"),
    "cache": (".dvc/cache/files/md5/aa/bb",),
    "work": ("state/train/paraclip/last.pt", "state/logs/x"),
    "answers": ("state/generations.db", "state/generations.db-wal", "state/generations-20260101-000000/generations.db"),
    "runs": ("mlruns/mlflow.db", "mlruns/artifacts/shop/x", "state/unsent/run.json"),
    "decisions": ("reports/promotion/latest.md",),
    "reviews": ("state/reviews.db",),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path, {"a": [], "b": ["a"]})
    for name in (*USERS, *(name for names in WRITTEN.values() for name in names)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def _left(project: Path) -> set[str]:
    names = (*USERS, *(name for names in WRITTEN.values() for name in names))
    return {name for name in names if (project / name).exists()}


def test_each_kind_removes_its_own_files_alone(project: Path) -> None:
    left = _left(project)
    listed = cliptune("clean")
    assert all(kind in listed for kind in WRITTEN)
    assert _left(project) == left
    for answer in ("", "n\n"):
        assert "nothing was removed" in cliptune("clean", *WRITTEN, answer=answer, code=1)
    assert _left(project) == left
    for turn, (kind, names) in enumerate(WRITTEN.items()):
        cliptune("clean", kind, *(["--yes"] if turn % 2 else []), answer="y\n")
        left -= set(names)
        assert _left(project) - {"state/reviews.db"} == left - {"state/reviews.db"}
    assert set(USERS) == left
    assert "0 B" in cliptune("clean", "outputs", "--yes")


def test_a_file_of_a_running_stage_stays(project: Path) -> None:
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    busy = f'{{"{project}/out/b.txt": {{"pid": {running.pid}, "cmd": "repro"}}}}'
    (project / ".dvc" / "tmp").mkdir()
    (project / ".dvc" / "tmp" / "rwlock").write_text(f'{{"read": {{}}, "write": {busy}}}')
    try:
        assert "is at work on the outputs" in cliptune("clean", "outputs", "--yes", code=1)
    finally:
        running.communicate(b"\n")
    assert (project / "out" / "b.txt").exists()


def test_reviews_of_an_earlier_version_survive_the_removal_of_answers(project: Path) -> None:
    for file in ("generations.db", "generations.db-wal", "votes.db", "reviews.db"):
        (project / "state" / file).unlink()
    old_store(project / "state" / "generations.db", "Ada")
    cliptune("clean", "answers", "--yes")
    with closing(Reviews("sqlite:///state/generations.db")) as reviews:
        assert [one.user for one in reviews.all()] == ["Ada"]
    assert not (project / "state" / "generations.db").exists()


def test_make_clean_removes_outputs_alone() -> None:
    done = subprocess.run(["make", "-n", "--no-print-directory", "clean"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "cliptune clean outputs --yes"
