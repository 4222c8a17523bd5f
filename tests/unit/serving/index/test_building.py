"""Building, adding and removing: each image once, and a failure never costs what an index has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from components.core.system.errors import InputError
from components.serving.index import building
from components.serving.index.building import ImageBlock, Opened, append, build, check_source, remove
from components.serving.index.image_index import (
    FACTS,
    KINDS,
    ImageIndex,
    choose_kind,
    fitted,
    further_name,
    read_facts,
    schema_for,
    stored_type,
)
from tests.support.index_making import OTHER_TOWER, TOWER, drawn, make_index, opened, unit, write_vectors

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
both_kinds = pytest.mark.parametrize("kind", KINDS)


def content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def captions(folder: Path) -> list[str]:
    return list(ImageIndex.open(folder).column("caption").to_pylist())


def vector_of(number: int) -> Any:
    return np.eye(8, dtype=np.float32)[number] if number < 8 else unit(drawn(1, number))[0]


def of(*images: tuple[str, str]) -> Opened:
    """A source of images by id, each with a caption, two to a block."""

    def blocks() -> Iterator[ImageBlock]:
        for start in range(0, len(images), 2):
            ids, texts = zip(*images[start : start + 2], strict=True)
            vectors = np.stack([vector_of(int(one)) for one in ids])
            table = pa.table({"image_id": [one.zfill(16) for one in ids], "caption": texts})
            yield ImageBlock("here", table, lambda rows, vectors=vectors: vectors[rows])

    return Opened(TOWER, "toy", 8, len(images), blocks)


@both_kinds
def test_an_image_is_a_row_with_its_first_caption(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "CHUNK", 7)
    numbers = np.random.default_rng(0).integers(0, 60, 200).tolist()
    first = {number: f"caption {row}" for row, number in reversed([*enumerate(numbers)])}
    many = build(tmp_path / "many", of(*((str(number), f"caption {row}") for row, number in enumerate(numbers))), kind)
    assert (many.rows, many.repeated) == (len(first), 200 - len(first))
    index, distinct = ImageIndex.open(tmp_path / "many"), [*dict.fromkeys(numbers)]
    assert len(index) == many.rows
    assert index.column("caption").to_pylist() == [first[number] for number in distinct]
    expected = np.stack([vector_of(number) for number in distinct])
    assert np.allclose(index.vector(index.numbers()), expected, atol=1e-6)
    assert np.allclose(np.concatenate([vectors for _, vectors in index.chunks()]), expected, atol=1e-6)


@both_kinds
def test_append_adds_what_is_not_there(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(("1", "a"), ("2", "b")), kind)
    before = ImageIndex.open(folder)
    found = append(folder, of(("2", "again"), ("3", "c"), ("3", "again"), ("4", "d")))
    assert (found.rows, found.repeated) == (2, 2)
    assert captions(folder) == ["a", "b", "c", "d"]
    index = ImageIndex.open(folder)
    assert index.rows(index.search(np.eye(8)[[3]], 1).rows[0])["caption"].to_pylist() == ["c"]
    # What was opened earlier does not change.
    assert (len(before), before.column("caption").to_pylist()) == (2, ["a", "b"])
    assert before.search(np.eye(8)[[3]], 5).rows[0, 2] == -1
    after = content(folder)
    assert append(folder, of(("1", "x"))).rows == 0
    assert content(folder) == after


@both_kinds
def test_rows_that_fulfil_a_condition_are_removed(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(*((str(number), f"it's {number}") for number in range(8))), kind)
    assert remove(folder, "caption = 'it''s 3' OR image_id LIKE '%5'") == 2
    assert captions(folder) == [f"it's {number}" for number in (0, 1, 2, 4, 6, 7)]
    index = ImageIndex.open(folder)
    assert index.rows(index.search(np.eye(8)[[6]], 1).rows[0])["caption"].to_pylist() == ["it's 6"]
    after = content(folder)
    assert remove(folder, "caption = 'nothing'") == 0
    with pytest.raises(InputError, match="an index needs one or more"):
        remove(folder, "caption IS NOT NULL")
    for wrong in ("colour = 'red'", "caption ="):
        with pytest.raises(InputError, match=f"condition '{wrong}' cannot be read") as raised:
            remove(folder, wrong)
        assert "\n" not in str(raised.value)
    assert content(folder) == after
    assert append(folder, of(("3", "back"))).rows == 1


def failing(source: Opened) -> Opened:
    def blocks() -> Iterator[ImageBlock]:
        yield next(source.blocks())
        raise InputError("the disk was pulled out")

    return replace(source, blocks=blocks)


@both_kinds
def test_a_failure_leaves_the_index_unchanged(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with pytest.raises(InputError, match="pulled out"):
        build(folder, failing(of(("1", "a"), ("2", "b"))), kind)
    assert not list(tmp_path.iterdir())
    build(folder, of(("1", "a"), ("2", "b")), kind)
    before = content(folder)
    for change in (append, partial(build, kind=kind, replace=True)):
        with pytest.raises(InputError, match="pulled out"):
            change(folder, failing(of(("3", "c"), ("4", "d"), ("5", "e"))))
        assert content(folder) == before


def test_a_failed_append_of_lance_keeps_whole_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "CHUNK", 2)
    folder, more = tmp_path / "index", of(("3", "c"), ("4", "d"), ("5", "e"))
    build(folder, of(("1", "a"), ("2", "b")), "lance")
    with pytest.raises(InputError, match="pulled out"):
        append(folder, failing(more))
    assert captions(folder) == ["a", "b", "c", "d"]
    assert (append(folder, more).rows, captions(folder)) == (1, ["a", "b", "c", "d", "e"])


KILLED = """
import os, signal
from pathlib import Path
from components.serving.index import kinds
from components.serving.index.building import append
from tests.support.index_making import opened
kinds.write_record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
append(Path("index"), opened(Path("more")))
"""


def test_a_killed_append_leaves_the_index(tmp_path: Path) -> None:
    make_index(tmp_path, 40)
    folder = tmp_path / "index"
    before = content(folder)
    write_vectors(tmp_path / "more", 0, drawn(10, 9))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[4]), *sys.path])}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(folder) == before
    assert append(folder, opened(tmp_path / "more")).rows == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "more", "vectors"]


def test_one_process_at_a_time_changes_it(tmp_path: Path) -> None:
    folder, others = tmp_path / "index", [partial(build, replace=True)]

    def blocks() -> Iterator[ImageBlock]:
        for other in others:
            with pytest.raises(InputError, match="another process changes"):
                other(folder, of(("2", "b")))
        yield from of(("3", "c")).blocks()

    source = replace(of(("3", "c")), blocks=blocks)
    assert build(folder, source).rows == 1
    others += [append, lambda folder, _: remove(folder, "true")]
    assert append(folder, source).rows == 0
    assert build(folder, source, replace=True).rows == 1


def test_only_an_index_is_replaced_when_asked_and_another_tower_or_width_not_added(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(("1", "a")))
    with pytest.raises(InputError, match=r"with image tower aaaaaaaaaaaa \(of 'toy'\), new images with bbbbbbbbb"):
        append(folder, replace(of(("2", "b")), image_tower_sha256=OTHER_TOWER))
    with pytest.raises(InputError, match="has vectors of 8 numbers, --from has 9: correct --from"):
        check_source(folder, read_facts(folder), replace(of(("2", "b")), dim=9))
    with pytest.raises(InputError, match="holds an index: use `cliptune index append`, or give --replace"):
        build(folder, of(("2", "b")))
    build(folder, of(("2", "b")), "lance", replace=True)
    assert (captions(folder), read_facts(folder).kind) == (["b"], "lance")
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "mine.jpg").write_bytes(b"irreplaceable")
    for replace_it in (True, False):
        with pytest.raises(InputError, match="holds files that do not belong to an index"):
            build(tmp_path / "photographs", of(("1", "a")), replace=replace_it)
    with pytest.raises(InputError, match="is not a folder"):
        build(tmp_path / "photographs" / "mine.jpg", of(("1", "a")))
    with pytest.raises(InputError, match="no image to index"):
        build(tmp_path / "empty", of())
    assert not (tmp_path / "empty").exists()


def test_an_index_of_an_earlier_format_names_the_command_that_builds_it_again(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    earlier = {"format": 1, "preparation": 2, "kind": "ivf_pq", "dim": 8, "image_tower_sha256": TOWER, "encoder": "toy"}
    (folder / FACTS).write_text(json.dumps(earlier | {"columns": {}, "segments": [], "recalls": [], "sha256": "0"}))
    for use in (ImageIndex.open, partial(append, opened=of(("3", "c"))), partial(remove, condition="true")):
        with pytest.raises(InputError, match="has format 1, this version reads 2: build it again") as raised:
            use(folder)
        command = "`cliptune index build <new folder> --from <its pictures> --encoder toy`"
        assert str(raised.value).endswith(command)
        assert "\n" not in str(raised.value)
    (folder / FACTS).write_text('{"format": 2, "encoder": "toy"}')
    with pytest.raises(InputError, match=r"index\.json is damaged \(kind: Field required\): build the index again"):
        ImageIndex.open(folder)
    assert build(folder, of(("1", "a")), replace=True).rows == 1


def test_auto_is_exact_up_to_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [choose_kind("auto", rows) for rows in (None, 1, 1_000_000, 1_000_001, 10**8)]
    assert kinds == ["exact", "exact", "exact", "lance", "lance"]
    with pytest.raises(InputError, match="--kind 'lanse' is unknown: did you mean 'lance'"):
        choose_kind("lanse", 3)
    monkeypatch.setattr("components.serving.index.image_index.find_spec", lambda _: None)
    assert choose_kind("auto", 1) == "exact"
    for kind, rows in (("auto", 10**8), ("lance", 1)):
        with pytest.raises(InputError, match="needs the package: pip install lancedb, or give --kind exact"):
            choose_kind(kind, rows)


def test_further_columns_are_kept_in_few_types(tmp_path: Path) -> None:
    kinds = {
        pa.int8(): pa.int64(), pa.float16(): pa.float64(), pa.bool_(): pa.bool_(), pa.null(): pa.string(),
        pa.large_string(): pa.string(), pa.date32(): pa.string(), pa.list_(pa.string()): None, pa.binary(): None,
    }  # fmt: skip
    assert {kind: stored_type(kind) for kind in kinds} == kinds
    assert [further_name(name) for name in ("shop", "file", "vector")] == ["shop", "file_", "vector_"]
    first = pa.table({"image_id": ["1"], "width": pa.array([3], pa.int8()), "tags": [["x"]]})
    schema = schema_for(first)
    assert schema.names[6:] == ["width"]
    assert fitted(pa.table({"image_id": ["2"], "more": [1]}), schema, "here").to_pylist()[0] == {
        "image_id": "2", "caption": None, "name": None, "file": None, "position": None, "size": None, "width": None,
    }  # fmt: skip
    with pytest.raises(InputError, match="here: column 'width' is string, the index has int64: convert or rename it"):
        fitted(pa.table({"image_id": ["2"], "width": ["wide"]}), schema, "here")
