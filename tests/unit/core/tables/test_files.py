"""Files appear whole or not at all, those of killed writers are removed, and faults of records are named."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from safetensors.numpy import save_file

from components.core.system.errors import InputError
from components.core.tables import arrays, files, formats
from components.core.tables.ahead import in_order, mapped, prefetched
from components.core.tables.arrays import TextColumn, mapped_array, rows_of, written_array
from components.core.tables.files import atomic_file, atomic_folder, content_hash, file_hash, write_json
from components.core.tables.formats import read_record, write_record

REPO = Path(__file__).parents[4]
_KILLED = """
import os, signal, sys
from pathlib import Path
from components.core.tables import files
with getattr(files, sys.argv[1])(Path("out[1]")) as temporary:
    (temporary / "half" if temporary.is_dir() else temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_of_weights_follow_the_umask(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic_file(tmp_path / "one.safetensors") as temporary:
            save_file({"a": np.zeros(2)}, temporary)
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "inner").mkdir()
            save_file({"a": np.zeros(2)}, temporary / "inner" / "two.safetensors")
    finally:
        os.umask(before)
    for path in (tmp_path / "one.safetensors", tmp_path / "folder" / "inner" / "two.safetensors"):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~umask


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_the_old_folder(tmp_path: Path, fault: type[BaseException]) -> None:
    path, folder = tmp_path / "file.txt", tmp_path / "folder"
    with atomic_file(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
    with pytest.raises(fault), atomic_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half of the n")
        raise fault
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == "old"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    with pytest.raises(fault), atomic_folder(folder) as temporary:  # noqa: PT012
        (temporary / "new.txt").write_text("new")
        raise fault
    assert _names(folder) == ["old.txt"]
    assert _names(tmp_path) == ["file.txt", "folder"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_folder_replaces_the_old_one(exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step where the file system can: a kill between two would leave no folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.delattr("os.replace") if exchanges else monkeypatch.setattr(files, "_exchanged", lambda *_: False)
    for name in ("one", "two"):
        with atomic_folder(folder) as temporary:
            (temporary / name).write_text(name)
    assert _names(folder) == ["two"]
    assert _names(tmp_path) == ["folder"]


def test_file_hash_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert file_hash(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
@example(["ab", "c"], ["a", "bc"])
def test_content_hashes_of_lists_are_equal_where_the_lists_are(one: list[str], other: list[str]) -> None:
    assert (content_hash(*one) == content_hash(*other)) == (one == other)
    assert content_hash(*one) == content_hash(*(part.encode() for part in one))


@pytest.mark.parametrize("name", ["atomic_file", "atomic_folder"])
def test_the_next_writer_removes_files_of_killed_writers(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, name], cwd=tmp_path, env={"PYTHONPATH": str(REPO)}, check=False)
    assert [path.name.startswith(".out[1].") for path in tmp_path.iterdir()] == [True]
    with atomic_file(tmp_path / "another"), atomic_folder(tmp_path / "out"):
        assert len(list(tmp_path.glob(".out[[]1*"))) == 1
    with atomic_file(tmp_path / "out[1]") as mine, atomic_file(tmp_path / "out[1]"):
        assert mine.exists()
        assert len(list(tmp_path.glob(".out[[]1*"))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "out", "out[1]"]


class Note(BaseModel):
    text: str
    pages: dict[str, int]


def test_a_record_comes_back_and_faults_are_named_with_the_fix(tmp_path: Path) -> None:
    note, path = Note(text="ä", pages={"z": 1, "a": 2}), tmp_path / "notes" / "one.json"
    with pytest.raises(InputError, match=r"one\.json is missing: write it$"):
        read_record(Note, path, "write it", "delete it")
    write_record(path, note)
    found = read_record(Note, path, "write it")
    assert found == note
    assert list(found.pages) == ["z", "a"]
    path = tmp_path / "one.json"
    for content, reason in (
        (b"", r"Invalid JSON"),
        (b'{"text": "a"', r"Invalid JSON"),
        (b"\xff\xfe", r"Invalid JSON"),
        (b"[]", r"object"),
        (b'{"text": "a"}', r"pages: Field required"),
        (b'{"text": "a", "pages": {"a": "x"}}', r"pages\.a: .*integer"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"one\.json is damaged \(.*{reason}.*\): delete it$"):
            read_record(Note, path, "write it", "delete it")
        with pytest.raises(InputError, match=r": write it$"):
            read_record(Note, path, "write it")


class Strict(Note, extra="forbid"):
    pass


def test_a_record_of_a_newer_version_is_refused_by_name_and_not_called_damaged(tmp_path: Path) -> None:
    path, note = tmp_path / "one.json", '"text": "a", "pages": {}'
    for content, reason in (
        (f'{{"format": 3, {note}}}', "it has format 3, this one reads 2"),
        (f'{{"colour": "red", {note}}}', "this one does not know 'colour'"),
    ):
        path.write_text(content)
        with pytest.raises(formats.NewerFormatError) as error:
            read_record(Strict, path, "write it", "delete it", newest=2)
        assert str(error.value) == f"{path} was made by a newer cliptune ({reason}): update cliptune"
    path.write_text(f"{{{note}}}")
    assert read_record(Strict, path, "write it", newest=2).text == "a"


ROWS = np.random.default_rng(0).normal(size=(60_000, 64)).astype(np.float32)


def test_a_file_in_blocks_has_the_bytes_of_a_whole_one(tmp_path: Path) -> None:
    rows = ROWS[:7]
    np.save(tmp_path / "whole.npy", rows)
    for block in (1, 4, 7):
        with written_array(tmp_path / "blocks.npy", np.float32, rows.shape) as add:
            for start in range(0, len(rows), block):
                add(rows[start : start + block])
        assert (tmp_path / "blocks.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="memory of a mapped file is read from /proc")
def test_rows_of_a_mapped_array_leave_no_pages_behind(tmp_path: Path) -> None:
    path, chosen = tmp_path / "rows.npy", np.arange(0, len(ROWS), 7)[::-1].copy()
    np.save(path, ROWS)
    mapped = mapped_array(path, "")
    assert np.asarray(mapped[chosen]).shape == (len(chosen), 64)
    assert _resident(path) > ROWS.nbytes / 2
    assert (rows_of(mapped, chosen) == ROWS[chosen]).all()
    assert _resident(path) == 0
    assert (rows_of(ROWS, chosen) == ROWS[chosen]).all()


def _resident(path: Path) -> int:
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    sizes = (next(line for line in lines if line.startswith("Rss:")) for head in lines if head.endswith(str(path)))
    return sum(int(size.split()[1]) * 1024 for size in sizes)


TEXTS = ["ape", "", "bee", "ape", "caf\u00e9"]


@given(st.lists(st.text(max_size=2)), st.lists(st.text(max_size=2)))
def test_places_are_the_first(texts: list[str], wanted: list[str]) -> None:
    expected = [texts.index(text) if text in texts else -1 for text in wanted]
    assert TextColumn(texts).places(wanted).tolist() == expected


def test_columns_of_texts_are_their_sequences_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text number {number}" for number in range(10_000)]
    assert TextColumn(texts).arrow.nbytes < sum(map(len, texts)) + 9 * len(texts)
    monkeypatch.setattr(arrays, "_BLOCK", 2)
    series, chunks = pd.Series(TEXTS, index=range(5, 10)), pa.chunked_array([TEXTS[:2], TEXTS[2:]])
    for given_texts in (TEXTS, series, pa.array(TEXTS), chunks):
        column = TextColumn(given_texts)
        assert list(column) == [column[place] for place in range(len(column))] == TEXTS, type(given_texts)
        assert list(column[1:3]) == TEXTS[1:3]
        assert list(TextColumn(column)) == TEXTS


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("prefetch", "ahead"))}


def test_items_come_in_order_with_a_limited_number_made_ahead() -> None:
    def produce(stop: threading.Event) -> Generator[int]:
        yield from range(5)
        raise RuntimeError("in the thread")

    items = prefetched(produce, 2)
    assert list(islice(items, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="in the thread"):
        next(items)
    assert not _threads()
    made: list[int] = []
    third = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                third.set()
            yield number

    items = prefetched(produce, 2)
    assert next(items) == 0
    assert third.wait(10)
    assert not threading.Event().wait(0.3)
    assert made == [0, 1, 2, 3]
    items.close()


@pytest.mark.parametrize("yielded", [1, 1_000_000], ids=["waits for the event", "waits for its reader"])
def test_closing_ends_a_producer_and_runs_its_clean_up(yielded: int) -> None:
    cleaned = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        try:
            yield from range(yielded)
            stop.wait()
        finally:
            cleaned.set()

    items = prefetched(produce, 1)
    next(items)
    items.close()
    assert cleaned.is_set()
    assert not _threads()


def test_pools_keep_the_order_look_a_limited_number_ahead_and_leave_no_thread() -> None:
    taken, before = list[int](), _threads()

    def items() -> Generator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(3) as pool:
        results = in_order(pool, lambda number: number * number, items(), 4)
        assert next(results) == (0, 0)
        assert taken == [0, 1, 2, 3, 4]
        assert list(results) == [(number, number * number) for number in range(1, 20)]
    found = mapped(lambda number: number * number, iter(range(1000)), 2)
    assert list(islice(found, 3)) == [(0, 0), (1, 1), (2, 4)]
    found.close()
    assert _threads() == before
    with pytest.raises(ZeroDivisionError):
        list(mapped(lambda number: 1 // number, [2, 1, 0], 2))
