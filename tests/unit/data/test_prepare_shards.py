"""Shards of `prepare`: each part of the pictures is checked by one of them, and the stage then checks none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.work_shard import Shard
from components.data import checked_pictures, listed_images, prepare
from components.data.checked_pictures import check_picture
from tests.support.shard_making import make_shards, picture
from tests.unit.data.sources.reading import prepare_settings

COUNTS = {"train": 17, "val": 2, "test": 2}
PICTURES, PARTS, SHARDS = 21, 7, 3


def _write_folder(folder: Path) -> None:
    folder.mkdir()
    for number in range(PICTURES):
        (folder / f"{number}.png").write_bytes(picture(number))
    lines = [f"{number}.png\tpicture number {number}\n" for number in range(PICTURES)]
    (folder / "captions.tsv").write_text("".join(["image\tcaption\n", *lines]))


@pytest.fixture(params=["folder", "webdataset"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Of 21 pictures in seven parts."""
    if request.param == "folder":
        monkeypatch.setattr(listed_images, "_CHUNK", PICTURES // PARTS)
        _write_folder(tmp_path / "pictures")
    else:
        make_shards(tmp_path / "pictures", PARTS, PICTURES // PARTS)
    folder = str(tmp_path / "pictures")
    return prepare_settings(raw_params, source=request.param, folder=folder, counts=COUNTS, processes=1)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each picture was checked, by its place."""
    found: Counter[str] = Counter()

    def watched(raw: bytes, place: str) -> None:
        found[place] += 1
        check_picture(raw, place)

    monkeypatch.setattr(checked_pictures, "check_picture", watched)
    return found


def _run(settings: Settings, folder: Path) -> dict[str, bytes]:
    """The stage's files and their bytes."""
    prepare.run(settings, folder / "pairs", folder / "evaluation")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _elsewhere(settings: Settings, state: Path) -> Settings:
    return settings.model_copy(update={"prepare": settings.prepare.model_copy(update={"state": state})})


def test_each_part_is_checked_by_one_shard_and_the_stage_gives_the_same_bytes(
    settings: Settings, tmp_path: Path, looks: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for number in range(SHARDS):
        before = set(settings.prepare.state.glob("*"))
        prepare.check(settings, Shard(number, SHARDS))
        made.append(len(set(settings.prepare.state.glob("*")) - before))
    assert made == [3, 2, 2]
    assert list(looks.values()) == [1] * PICTURES
    printed = [f"prepare shard {number}/{SHARDS}: made {count}" for number, count in enumerate(made)]
    assert capsys.readouterr().out.splitlines() == printed
    assert not (tmp_path / "of shards").exists()
    found = _run(settings, tmp_path / "of shards")
    assert list(looks.values()) == [1] * PICTURES
    assert found == _run(_elsewhere(settings, tmp_path / "alone"), tmp_path / "of one")


def test_a_source_without_files_cannot_be_split(raw_params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"source 'synthetic' cannot be split: run prepare without --shard"):
        prepare.check(Settings.model_validate(raw_params), Shard(0, 2))


def test_a_shard_is_read_as_it_is_written_and_other_texts_are_refused() -> None:
    assert Shard.parse("1/4") == Shard(1, 4)
    assert str(Shard(1, 4)) == "1/4"
    for text in ("3/3", "1", "a/b", "-1/4", "1/"):
        with pytest.raises(InputError, match="is not a shard: give for example 0/4"):
            Shard.parse(text)
