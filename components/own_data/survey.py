"""Inspects a folder of captioned images for `cliptune init`: its source, its size, its problems."""

from __future__ import annotations

import filecmp
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.pictures.rgb import HEIC_FIX
from components.core.settings import Counts, Prepare
from components.core.system.discovery import names_in
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.text.languages import ENGLISH, detected, language_name
from components.data.checked_pictures import check_picture
from components.data.source import Described, Source
from components.data.sources import find_source
from components.own_data.text_facts import text_facts

_LOOKED_AT = 200
"""Number of images to open, evenly spaced."""
_FEWEST = 10
_LONGEST = 15
"""Most words of captions that ParaCLIP rewrites; more where one in twenty captions is longer."""
_DEPTH = 10
"""The largest k of profiles' `evaluate.top_k`."""
_ROW_BYTES = 150
"""Size of a pair on disk, measured with Flickr8k's captions; pictures are not copied."""
_TAIL = 64
"""Bytes at the end of a file; only files of one size that share them are compared whole."""
_HELD_OUT = 5000
"""Maximum number of test and of validation images without published splits; a tenth of a small folder each."""


@dataclass(frozen=True)
class Survey:
    """A folder as a source of pairs.

    Attributes:
        bad: the reasons why some of the `opened` images cannot be used.
        seconds: expected time of `prepare`.
        facts: facts about captions and items, in words.
        languages: codes of the captions' languages, the most frequent first.
        caption_words: number of words of captions that are rewritten, at least and at most.
    """

    source: str
    file: str
    described: Described
    counts: Counts
    bad: tuple[str, ...]
    opened: int
    seconds: float
    bytes: int
    facts: tuple[str, ...]
    languages: tuple[str, ...]
    caption_words: tuple[int, int]


def survey(folder: Path, columns: Mapping[str, str] | None = None) -> Survey:
    """Inspect a folder; `columns` are `prepare.text` and `prepare.item`.

    Raises:
        InputError: no source reads it, several do, its file is damaged, or there are too few images.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder of the images")
    name, source, file = _source_of(folder)
    assert source.describe is not None
    described = source.describe(
        Prepare(source=name, counts=Counts(train=1, val=1, test=1), folder=folder, **columns or {})
    )
    _require_images(folder, described)
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
    copies = _copies([Path(place) for place, _ in described.pictures])
    texts, languages = text_facts(described.texts), detected(described.texts)
    lines = texts.lines(bool(described.items)) if texts is not None else []
    return Survey(
        source=name,
        file=file,
        described=described,
        counts=_counts(described, copies),
        bad=tuple(bad),
        opened=len(chosen),
        seconds=seconds,
        bytes=_ROW_BYTES * captions,
        facts=(*_languages(languages), *lines, *_items(described.items), *_copied(copies)),
        languages=tuple(languages) or (ENGLISH,),
        caption_words=(2, max(_LONGEST, texts.words[2]) if texts is not None else _LONGEST),
    )


def _languages(found: Mapping[str, float]) -> list[str]:
    if not found or tuple(found) == (ENGLISH,):
        return []
    shares = ", ".join(f"{language_name(code)} {share:.0%}" for code, share in found.items())
    return [f"languages: {shares} (validate.language); the base must read them"]


def _items(items: Sequence[str]) -> list[str]:
    if not items:
        return []
    pictures = Counter(items).values()
    several = sum(count > 1 for count in pictures)
    return [f"items: {len(pictures):,} products, {several:,} with several pictures, at most {max(pictures)}"]


def _copies(files: Sequence[Path]) -> int:
    """The number of pictures in files that have the same bytes as an earlier one."""
    first: dict[tuple[int, bytes], Path] = {}
    found = 0
    for file in track(files, "look for copies", len(files), "picture"):
        if file.is_file():
            with file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - _TAIL))
                other = first.setdefault((size, stream.read()), file)
            found += other is not file and filecmp.cmp(other, file, shallow=False)
    return found


def _copied(copies: int) -> list[str]:
    return (
        [f"copies: {copies:,} pictures are in another file too; each is one picture with all captions"]
        if copies
        else []
    )


def _source_of(folder: Path) -> tuple[str, Source, str]:
    sources = {name: find_source(name) for name in names_in("components.data.sources")}
    able = {name: source for name, source in sources.items() if source.describe is not None}
    files = {name: file for name, source in able.items() if (file := source.found_in(folder)) is not None}
    if not files:
        formats = "; ".join(f"{name}: {source.file}" for name, source in able.items())
        tables = [file for file in sorted(folder.iterdir()) if file.suffix in (".csv", ".tsv", ".jsonl")]
        write = "write a captions.tsv into it, or have a model write it (--captions model)"
        fix = f"rename {tables[0].name} to captions{tables[0].suffix}" if tables else write
        raise InputError(f"{folder} is in no known format ({formats}): {fix}")
    if len(files) > 1:
        formats = ", ".join(f"{name} ({file})" for name, file in files.items())
        raise InputError(
            f"{folder} matches several formats, {formats}: keep the file of one, or set prepare.source yourself"
        )
    (name, file), *_ = files.items()
    return name, able[name], file


def _require_images(folder: Path, described: Described) -> None:
    images = described.images
    if (count := sum(images.values())) < _FEWEST:
        why = "".join(f"; {image.reason}" for image in described.unusable[:1])
        raise InputError(f"{folder} has {count} images: at least {_FEWEST} are needed{why}")
    if not described.captions.get("train"):
        raise InputError(f"{folder} has only images of split {' and '.join(images)}: add some to train on")


def _counts(described: Described, copies: int) -> Counts:
    images, left = described.images, described.captions["train"]
    drawn = min(_HELD_OUT, max(1, images.get("train", 0) // 10))
    held_out = {split: images.get(split) or drawn for split in ("test", "val")}
    # The drawn images may be those with the most captions.
    left -= sum(drawn * described.most_captions for split in held_out if not images.get(split))
    # The last item of a split may have more images than it has room for, which are left out.
    left -= len(held_out) * (max(Counter(described.items).values(), default=1) - 1)
    # `prepare` leaves out a caption that a picture has already.
    left -= max(left // 100, copies * described.most_captions)
    return Counts(train=max(1, left), **held_out)


def problems(contents: Survey) -> Sequence[str]:
    """Problems that matter before the first stage runs."""
    texts = []
    unusable = contents.described.unusable
    if unusable and HEIC_FIX in unusable[0].reason:
        texts.append(unusable[0].reason)
        unusable = unusable[1:]
    if unusable:
        texts.append(
            f"{sum(image.images for image in unusable)} images that {contents.file} names are missing or damaged: "
            f"`prepare` skips up to prepare.max_unusable_share of the images; the first: {unusable[0].reason}"
        )
    if contents.counts.test < _DEPTH:
        texts.append(
            f"{contents.counts.test} test images, fewer than {_DEPTH} in evaluate.top_k: add images, or lower it"
        )
    if contents.bad:
        texts.append(f"{len(contents.bad)} of {contents.opened} opened images cannot be used: {contents.bad[0]}")
    return texts
