"""What lies in a folder of captioned images: which source reads it, how much there is, and what is wrong with it.

Used by `cliptune import`, before a stage runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.discovery import names_in
from components.core.errors import InputError
from components.core.settings import Counts, Prepare
from components.data.checked_pictures import check_picture
from components.data.source import Described, Source
from components.data.sources import find_source

_LOOKED_AT = 200
"""Images that are opened, evenly chosen."""
_FEWEST = 10
_DEPTH = 10
"""The largest k of profiles' `evaluate.ks`."""
_ROW_BYTES = 150
"""Of a pair on disk, measured with Flickr8k's captions: pictures stay where they are."""
_HELD_OUT = 5000
"""Images to test and to validate with where no split is published, at most; a tenth of a small folder each."""


@dataclass(frozen=True)
class Survey:
    """A folder as a source of pairs.

    Attributes:
        source: name of the source that reads it.
        file: by which it was known.
        described: what its file says.
        counts: what `prepare.counts` may ask for.
        bad: of the images that were opened, those that cannot be used, each with the reason.
        opened: how many images were opened.
        seconds: expected time of `prepare`.
        bytes: expected size of `data/pairs`.
    """

    source: str
    file: str
    described: Described
    counts: Counts
    bad: tuple[str, ...]
    opened: int
    seconds: float
    bytes: int


def survey(folder: Path) -> Survey:
    """Look at a folder.

    Raises:
        InputError: no source reads it, several do, its file is damaged, or there are too few images.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give the one that holds the images")
    name, source, file = _source_of(folder)
    assert source.describe is not None
    described = source.describe(Prepare(source=name, counts=Counts(train=1, val=1, test=1), folder=folder))
    started, bad = time.perf_counter(), list[str]()
    step = max(1, len(described.pictures) // _LOOKED_AT)
    chosen = described.pictures[::step][:_LOOKED_AT]
    for place, read in chosen:
        try:
            check_picture(read(), place)
        except (InputError, OSError) as fault:
            bad.append(str(fault))
    per_image = (time.perf_counter() - started) / max(1, len(chosen))
    images, captions = sum(described.images.values()), sum(described.captions.values())
    seconds = per_image * images / len(os.sched_getaffinity(0))
    return Survey(
        name, file, described, _counts(folder, described), tuple(bad), len(chosen), seconds, _ROW_BYTES * captions
    )


def _source_of(folder: Path) -> tuple[str, Source, str]:
    sources = {name: find_source(name) for name in names_in("components.data.sources")}
    able = {name: source for name, source in sources.items() if source.describe is not None}
    found = {name: file for name, source in able.items() if (file := source.found_in(folder)) is not None}
    if not found:
        told = "; ".join(f"{name}: {source.file}" for name, source in able.items())
        raise InputError(f"{folder} is in no format that is known here ({told}): write a captions.tsv into it")
    if len(found) > 1:
        told = ", ".join(f"{name} ({file})" for name, file in found.items())
        raise InputError(f"{folder} is what {told} read: keep one's file, or set prepare.source yourself")
    (name, file), *_ = found.items()
    return name, able[name], file


def _counts(folder: Path, described: Described) -> Counts:
    images, left = described.images, described.captions.get("train", 0)
    if (count := sum(images.values())) < _FEWEST:
        why = "".join(f"; {one.reason}" for one in described.unusable[:1])
        raise InputError(f"{folder} has {count} images: at least {_FEWEST} are needed{why}")
    if not left:
        raise InputError(f"{folder} has images of split {' and '.join(images)} alone: add some to train on")
    drawn = min(_HELD_OUT, max(1, images.get("train", 0) // 10))
    held_out = {split: images.get(split) or drawn for split in ("test", "val")}
    # Those with the most captions may be drawn.
    left -= sum(drawn * described.most_captions for split in held_out if not images.get(split))
    # Images that lie there twice, and captions that are repeated, are left out by `prepare`.
    return Counts(train=max(1, left - left // 100), **held_out)


def problems(found: Survey) -> Sequence[str]:
    """What a user should know before the first stage runs."""
    told = []
    if unusable := found.described.unusable:
        told.append(
            f"{sum(one.images for one in unusable)} images that {found.file} names are missing or damaged: `prepare` "
            f"leaves out as many as prepare.max_unusable_share allows; the first: {unusable[0].reason}"
        )
    if found.counts.test < _DEPTH:
        told.append(
            f"{found.counts.test} images to test with, where evaluate.ks asks for {_DEPTH}: add some, or lower it"
        )
    if found.bad:
        told.append(f"{len(found.bad)} of {found.opened} images that were opened cannot be used: {found.bad[0]}")
    return told
