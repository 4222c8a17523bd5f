"""Pictures are checked once, in parallel or one by one, and again only after a change; unusable ones have a reason."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from components.core.settings import Counts, Prepare
from components.core.system.errors import InputError
from components.data.checked_pictures import check_picture, checked
from components.data.source import PictureChunk, Sample, Unusable, UnusableError
from tests.support.shard_making import picture

PARTS, IN_PART = 6, 3


def _read(number: int, log: Path) -> Iterator[Sample | Unusable]:
    with log.open("a") as stream:
        stream.write(f"{number}\n")
    yield Unusable(f"nothing at {number}", 2)
    for place in range(IN_PART):
        raw = b"no image" if place == 0 else picture(8 + number * IN_PART + place)
        yield Sample.of(raw, f"{number}/{place}", f"{number}.tar", place, (f"caption {place}",), "name")


def _killed(log: Path) -> Iterator[Sample]:
    log.touch()
    os.kill(os.getpid(), 9)
    yield from ()


Run = Callable[..., list[Sample | Unusable]]


@pytest.fixture
def parts(tmp_path: Path) -> list[PictureChunk]:
    return [
        PictureChunk(f"stamp {number}", partial(_read, number, tmp_path / "log"), IN_PART + 1)
        for number in range(PARTS)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Checks parts in so many processes."""

    def check(parts: list[PictureChunk], processes: int = 1) -> list[Sample | Unusable]:
        counts, state = Counts(train=1, val=1, test=1), tmp_path / f"by{processes}"
        return list(checked(parts, Prepare(source="s", counts=counts, processes=processes, state=state)))

    return check


def _log(tmp_path: Path) -> list[int]:
    """The parts that were checked since the last call."""
    checked_parts = sorted(map(int, (tmp_path / "log").read_text().split()))
    (tmp_path / "log").unlink()
    return checked_parts


def test_several_processes_give_the_same_pictures_in_the_same_order(
    parts: list[PictureChunk], run: Run, tmp_path: Path
) -> None:
    one = run(parts)
    assert one == run(parts, 3)
    assert _log(tmp_path) == sorted([*range(PARTS)] * 2)
    assert one[0] == Unusable("nothing at 0", 2)
    assert isinstance(one[1], Unusable)
    assert one[1].reason.startswith("0/0 is not a readable image")
    read = [sample for sample in _read(0, tmp_path / "log") if isinstance(sample, Sample)]
    assert one[2 : IN_PART + 1] == [replace(sample, raw=None) for sample in read[1:]]


def test_only_what_changed_is_checked_again(parts: list[PictureChunk], run: Run, tmp_path: Path) -> None:
    before = run(parts)
    _log(tmp_path)
    assert run([*parts[:2], PictureChunk("another stamp", parts[2].read, 1), *parts[3:]]) == before
    assert _log(tmp_path) == [2]


def test_a_killed_process_is_reported_in_one_line(parts: list[PictureChunk], run: Run, tmp_path: Path) -> None:
    parts[4] = PictureChunk("killed", partial(_killed, tmp_path / "log"), 1)
    with pytest.raises(InputError, match=r"was killed.*lower prepare\.processes"):
        run(parts, 2)


def _tiff(kind: Any) -> bytes:
    pixels = np.linspace(0, 1, 256).reshape(16, 16).astype(kind)
    Image.fromarray(pixels).save(buffer := io.BytesIO(), "TIFF")
    return buffer.getvalue()


def _saved(size: tuple[int, int], kind: str, mode: str = "L") -> bytes:
    Image.new(mode, size).save(buffer := io.BytesIO(), kind)
    return buffer.getvalue()


_POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n"


def test_a_picture_that_cannot_be_used_has_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a picture's name: Pillow lets Ghostscript draw PostScript."""
    for raw, reason in (
        (_POSTSCRIPT, "no known format"),
        (_saved((16, 16), "ICO"), "no known format"),
        (_saved((10_000, 4_001), "PNG", "1"), "10000x4001 pixels are more than 40,000,000"),
        (_saved((257, 1), "PNG"), "257x1 pixels are too long and narrow"),
        (_saved((64, 64), "AVIF")[:-20] + bytes(20), "Failed to decode frame 0: .*"),
        (_tiff(np.float32), ".* save it with 8 or 16 bits"),
        (_tiff(np.int32), ".* save it with 8 or 16 bits"),
    ):
        with pytest.raises(UnusableError, match=rf"^x\.jpg is not a readable image \({reason}\): replace or"):
            check_picture(raw, "x.jpg")
    check_picture(_tiff(np.uint16), "x.tif")
    for kind in (RuntimeError, TypeError, NotImplementedError, AttributeError, MemoryError):
        monkeypatch.setattr(Image.Image, "draft", Mock(side_effect=kind))
        with pytest.raises(UnusableError, match=rf"x\.png is not a readable image \({kind.__name__}\)"):
            check_picture(_saved((16, 16), "PNG"), "x.png")
