"""Building and adding: each image once, and nothing changes unless all went well."""

from __future__ import annotations

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
from components.index import building
from components.index.building import append, build, left_over, strays
from components.index.checking import check
from components.index.facts import read_facts, write_facts
from components.index.image_index import ImageIndex
from components.index.sources import find_source
from components.index.sources.source import ImageBlock, Opened
from tests.support.index_making import OTHER_TOWER, TOWER, drawn, make_index, opened, toy, unit, write_vectors


def content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def vector_of(number: int) -> Any:
    return np.eye(8, dtype=np.float32)[number] if number < 8 else unit(drawn(1, number))[0]


def of(*images: tuple[str, str]) -> Opened:
    """A source of images by id, each with a caption, two to a block."""

    def blocks() -> Iterator[ImageBlock]:
        for start in range(0, len(images), 2):
            ids, captions = zip(*images[start : start + 2], strict=True)
            vectors = np.stack([vector_of(int(one)) for one in ids])
            table = pa.table({"image_id": [one.zfill(16) for one in ids], "caption": captions})
            yield ImageBlock("here", table, lambda rows, vectors=vectors: vectors[rows])

    return Opened(TOWER, "toy", 8, len(images), blocks)


FILLER = [(str(number), f"caption {number}") for number in range(100, 1100)]
"""Images that the lists of approximate search need in order to be trained."""


def test_one_image_is_one_row_with_its_first_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_SEGMENT", 3)
    numbers = np.random.default_rng(0).integers(0, 60, 200).tolist()
    first = {number: f"caption {row}" for row, number in reversed([*enumerate(numbers)])}
    many = build(tmp_path / "many", of(*((str(number), f"caption {row}") for row, number in enumerate(numbers))))
    assert (many.rows, many.repeated) == (len(first), 200 - len(first))
    assert {segment.rows for segment in many.facts.segments[:-1]} <= {3, 4}
    index, distinct = ImageIndex.open(tmp_path / "many"), [*dict.fromkeys(numbers)]
    assert index.rows(range(many.rows))["caption"].to_pylist() == [first[number] for number in distinct]
    assert np.allclose(index.vector(range(many.rows)), np.stack([vector_of(number) for number in distinct]), atol=1e-6)


def test_append_skips_known_images_and_keeps_old_files(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(("1", "a"), ("2", "b"), *FILLER), "ivf_pq", toy())
    before, count = content(folder), 2 + len(FILLER)
    found = append(folder, of(("2", "again"), ("3", "c"), ("3", "again"), ("4", "d")), toy())
    assert (found.rows, found.repeated, found.facts.rows) == (2, 2, count + 2)
    after = content(folder)
    assert all(after.get(name) == before[name] for name in before if name.startswith(("vectors", "rows")))
    index = ImageIndex.open(folder)
    assert index.rows([0, 1, count, count + 1])["caption"].to_pylist() == ["a", "b", "c", "d"]
    assert index.search(np.eye(8)[[3]], 1).rows.tolist() == [[count]]
    assert not strays(folder, index.facts)
    assert append(folder, of(("1", "x")), toy()).rows == 0
    assert content(folder) == after


def failing(source: Opened) -> Opened:
    def blocks() -> Iterator[ImageBlock]:
        yield next(source.blocks())
        raise InputError("the disk was pulled out")

    return replace(source, blocks=blocks)


def test_a_failure_leaves_the_index_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, kind = tmp_path / "index", "ivf_pq"
    with pytest.raises(InputError, match="pulled out"):
        build(folder, failing(of(("1", "a"), ("2", "b"))), kind, toy())
    assert not list(tmp_path.iterdir())
    build(folder, of(("1", "a"), ("2", "b"), *FILLER), kind, toy())
    before = content(folder)
    more = of(("3", "c"), ("4", "d"), ("5", "e"))
    for change in (append, partial(build, kind=kind, replace=True)):
        with pytest.raises(InputError, match="pulled out"):
            change(folder, failing(more), encoder=toy())
        assert content(folder) == before

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "write_facts", stop)
    with pytest.raises(KeyboardInterrupt):
        append(folder, more, toy())
    assert content(folder) == before


KILLED = """
import os, signal
from pathlib import Path
from components.index import building
from tests.support.index_making import opened, toy
building.write_facts = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
building.append(Path("index"), opened(Path("more")), toy())
"""


def test_a_killed_append_leaves_an_index_that_the_next_one_tidies(tmp_path: Path) -> None:
    make_index(tmp_path, 1000, "ivf_pq")
    folder = tmp_path / "index"
    before, facts = content(folder), read_facts(folder)
    write_vectors(tmp_path / "more", 0, drawn(10, 9))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    left = content(folder)
    assert len(strays(folder, facts)) == 3
    assert {name: left[name] for name in before} == before
    assert len(ImageIndex.open(folder)) == 1000
    assert append(folder, opened(tmp_path / "more"), toy()).rows == 10
    assert not strays(folder, read_facts(folder))


def test_another_tower_or_width_is_not_added(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(("1", "a")))
    with pytest.raises(InputError, match=r"with image tower aaaaaaaaaaaa \(of 'toy'\), new images with bbbbbbbbb"):
        append(folder, replace(of(("2", "b")), image_tower_sha256=OTHER_TOWER))
    with pytest.raises(InputError, match="has vectors of 8 numbers, --from has 9: correct --from"):
        append(folder, replace(of(("2", "b")), dim=9))
    with pytest.raises(InputError, match="encoder 'other' has image tower bbbbbbbbbbbb"):
        append(folder, of(("2", "b")), toy("other", OTHER_TOWER))


def test_one_process_at_a_time_changes_it(tmp_path: Path) -> None:
    folder, others = tmp_path / "index", [partial(build, replace=True)]

    def blocks() -> Iterator[ImageBlock]:
        assert not left_over(folder)
        for other in others:
            with pytest.raises(InputError, match="another process changes"):
                other(folder, of(("2", "b")))
        yield from of(("3", "c")).blocks()

    source = replace(of(("3", "c")), blocks=blocks)
    assert build(folder, source).facts.rows == 1
    (folder / "vectors" / "000009.npy").touch()
    others.append(append)
    for change in (append, partial(build, replace=True)):
        assert change(folder, source).facts.rows == 1
    assert not check(folder).problems


def test_only_an_index_is_replaced_and_only_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(("1", "a")))
    with pytest.raises(InputError, match="holds an index: use `cliptune index append`, or give --replace"):
        build(folder, of(("2", "b")))
    assert build(folder, of(("2", "b")), replace=True).facts.rows == 1
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


def test_approximate_search_needs_queries_and_an_encoder_with_finite_features(tmp_path: Path) -> None:
    named, unnamed = of(*FILLER), of(*((number, " ") for number, _ in FILLER))
    with pytest.raises(InputError, match="kind 'ivf_pq' is tuned on text queries: give --encoder"):
        build(tmp_path / "index", named, "ivf_pq")
    with pytest.raises(InputError, match="no image has a caption: give --queries"):
        build(tmp_path / "index", unnamed, "ivf_pq", toy())
    broken = toy()
    broken.encoder.table = {"a dog": [np.nan] * 8}  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="gives 'a dog' a non-finite feature"):
        build(tmp_path / "index", unnamed, "ivf_pq", broken, ["a dog"])
    assert build(tmp_path / "index", unnamed, "ivf_pq", toy(), ["a dog"]).facts.recalls[0].queries == 1
    with pytest.raises(InputError, match="must be tuned on text queries again: give --encoder"):
        append(tmp_path / "index", of(("3", "c")))


def test_an_index_of_a_removed_kind_names_the_command_that_rebuilds_it(tmp_path: Path) -> None:
    folder, new = tmp_path / "index", tmp_path / "new"
    facts = build(folder, of(("1", "a"), ("2", "b"))).facts
    write_facts(folder, facts.model_copy(update={"kind": "usearch"}))
    for use in (lambda: ImageIndex.open(folder), lambda: append(folder, of(("3", "c")))):
        with pytest.raises(InputError, match=f"run `cliptune index build <new folder> --from {folder} --encoder toy`"):
            use()
    assert "cannot search" in check(folder).problems[0].what
    assert build(new, find_source("index").open(str(folder), toy())).facts.rows == 2
    assert np.array_equal(ImageIndex.open(new).vector([0, 1]), np.eye(8, dtype=np.float32)[[1, 2]])


def test_a_file_out_of_the_folder_is_never_written(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, of(("1", "a")))
    (folder / "vectors" / "000001.npy").symlink_to(tmp_path / "elsewhere")
    append(folder, of(("2", "b")))
    assert not (tmp_path / "elsewhere").exists()
    assert len(ImageIndex.open(folder)) == 2
