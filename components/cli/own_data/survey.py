"""Inspects a folder of captioned images for `cliptune init`: its source, its size, its problems."""

from __future__ import annotations

import math
import os
import re
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from components.cli.own_data.counting import allowed_loss, counts_of, least_gain
from components.core.pictures.folder import is_ignored
from components.core.pictures.rgb import HEIC_FIX
from components.core.settings import Counts, Prepare
from components.core.system.discovery import names_in
from components.core.system.errors import InputError
from components.core.tables.parquet_rows import DAMAGED
from components.core.text.languages import ENGLISH, detected, language_name, word_count
from components.data.checked_pictures import check_picture
from components.data.described import Described
from components.data.source import Source
from components.data.sources import find_source
from components.evaluation.scoring.intervals import FEWEST

_LOOKED_AT = 200
"""Number of images to open, evenly spaced."""
_FEWEST, _LARGE_GAIN = 10, 5
_LONGEST = 15
"""Most words of captions that ParaCLIP rewrites; more where one in twenty captions is longer."""
_DEPTH = 10
"""The largest k of profiles' `evaluate.top_k`."""
_COUNTED, _ENDINGS_SHOWN = 10_000, 6
"""Files of an unknown folder that are counted at most, and the number of their endings that are named."""
_URLS = ("url", "image_url", "img_url", "URL", "image_link", "link")
_ROW_BYTES = 150
"""Size of a pair on disk, measured with Flickr8k's captions; pictures are not copied."""
_NOISE = {
    "file names": re.compile(r"\.(?:jpe?g|png|webp|gif|tiff?)\b|^(?:IMG|DSC|P)_?\d{3,}", re.IGNORECASE),
    "HTML": re.compile(r"</?[a-z][^>]*>|&[a-z]+;", re.IGNORECASE),
    "codes": re.compile(r"\b(?=\w*\d)(?=\w*[A-Z])[A-Z0-9-]{6,}\b"),
    "links": re.compile(r"https?://|www\."),
}
_PERCENTILES, _RARE = (5, 50, 95), 0.01
"""Percentiles of the number of words, and the share of captions below which a fact about them is left out."""


@dataclass(frozen=True)
class Survey:
    """A folder as a source of pairs.

    Attributes:
        fields: `prepare.text`, `prepare.item` and `prepare.image`, if they are set.
        bad: the reasons why some of the `opened` images cannot be used.
        seconds: expected time of `prepare`.
        facts: facts about captions and items, in words.
        languages: codes of the captions' languages, the most frequent first.
        caption_words: number of words of captions that are rewritten, at least and at most.
    """

    folder: Path
    fields: Mapping[str, str]
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

    @property
    def prepare(self) -> dict[str, Any]:
        """Block `prepare` of params.yaml, without `counts`."""
        share = {} if self.unusable_share is None else {"max_unusable_share": self.unusable_share}
        return {"source": self.source, "folder": str(self.folder), **self.fields, **share}

    @property
    def watched(self) -> Path | None:
        """The file of captions, or the folder of several; None for shards, which take DVC long to read."""
        watches = find_source(self.source).watched
        return None if watches is None else watches(self.folder)

    @property
    def unusable_share(self) -> float | None:
        """What `prepare.max_unusable_share` must be, in hundredths; None if its default suffices."""
        lost = sum(image.images for image in self.described.unusable)
        bad = len(self.bad) / max(1, self.opened)
        if self.bad and self.opened < len(self.described.pictures):
            # Of a sample: three standard deviations more.
            bad += 3 * math.sqrt(bad / self.opened)
        images = sum(self.described.images.values())
        share = math.ceil(100 * (lost + bad * images) / min(self.counts.total, images)) / 100
        usual = Prepare.model_fields["max_unusable_share"].default
        return min(share, 0.99) if share > usual else None


def survey(folder: Path, fields: Mapping[str, str] = MappingProxyType({}), seed: int = 0) -> Survey:
    """Inspect a folder; for `fields` see `Survey`, `seed` is `dataset.seed`, by which images are drawn."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder of the images")
    name, source, file = _source_of(folder)
    assert source.describe is not None
    described = source.describe(Prepare(source=name, counts=Counts(train=1, val=1, test=1), folder=folder, **fields))
    item = fields.get("item")
    if item and not any(named for _, named, _ in described.groups):
        raise InputError(f"{folder}: no row has a value of '{item}', which --item names: correct it")
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
    counts = counts_of(described, seed)
    (lines, long), languages = _text_facts(described.texts, bool(item)), detected([*described.texts])
    return Survey(
        folder=folder,
        fields=fields,
        source=name,
        file=file,
        described=described,
        counts=counts,
        bad=tuple(bad),
        opened=len(chosen),
        seconds=seconds,
        bytes=_ROW_BYTES * captions,
        facts=(*_languages(languages), *lines, *_items(described), *_copied(described.copies), _gate(counts.test)),
        languages=tuple(languages) or (ENGLISH,),
        caption_words=(2, max(_LONGEST, long)),
    )


def _languages(found: Mapping[str, float]) -> list[str]:
    if not found or tuple(found) == (ENGLISH,):
        return []
    shares = ", ".join(f"{language_name(code)} {share:.0%}" for code, share in found.items())
    return [f"languages: {shares} (validate.language); the base must read them"]


def _items(described: Described) -> list[str]:
    pictures = Counter[str]()
    for (_, item, _), images in described.groups.items():
        pictures[item] += images if item else 0
    if not +pictures:
        return []
    several = sum(count > 1 for count in pictures.values())
    ((largest, most),) = pictures.most_common(1)
    found = f"{len(+pictures):,} products, {several:,} with several pictures, at most {most} ('{largest[:40]}')"
    return [f"items: {found}"]


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
        raise InputError(f"{folder} is in no known format ({formats}); {_content_and_fix(folder)}")
    if len(files) > 1:
        formats = ", ".join(f"{name} ({file})" for name, file in files.items())
        raise InputError(
            f"{folder} matches several formats, {formats}: keep the file of one, or set prepare.source yourself"
        )
    (name, file), *_ = files.items()
    return name, able[name], file


def _content_and_fix(folder: Path) -> str:
    """The folder's files by ending with the columns of a table, and what to do, in words."""
    names = (path for path in folder.rglob("*") if not is_ignored(str(path.relative_to(folder))))
    files = sorted(islice((path for path in names if path.is_file()), _COUNTED))
    endings = Counter(path.suffix.lower() or "without ending" for path in files)
    has = ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(_ENDINGS_SHOWN)) or "no files"
    table = next((path for path in files if path.suffix == ".parquet"), None)
    columns = _columns(table)
    shown = f"; {table.relative_to(folder)} has the columns {', '.join(columns)}" if table and columns else ""
    return f"it has {has}{shown}: {_fix(folder, files, table, columns)}"


def _fix(folder: Path, files: Iterable[Path], table: Path | None, columns: Sequence[str]) -> str:
    url = next((name for name in _URLS if name in columns), None)
    if table is not None and url is not None:
        return (
            f"it has URLs and no pictures, which img2dataset downloads: img2dataset --url_list {table} --input_format "
            f"parquet --url_col {url} --caption_col ... --output_format webdataset --output_folder ..."
        )
    if table is not None and columns:
        return "if it names pictures in this folder, rename it to captions.parquet; their column is named by --image"
    for path in files:
        if path.suffix == ".arrow":
            return (
                f"{path.name} is of the `datasets` library's save_to_disk: write Parquet files by load_from_disk(...)"
                ".to_parquet('train.parquet'), one for each split"
            )
        if path.parent == folder and path.suffix in (".csv", ".tsv", ".json", ".jsonl"):
            return f"rename {path.name} to captions{path.suffix}"
    return "write a captions.tsv into it, or have a model write it (--captions model)"


def _columns(table: Path | None) -> list[str]:
    try:
        return [] if table is None else list(pq.read_schema(table).names)
    except DAMAGED:
        return []


def _require_images(folder: Path, described: Described) -> None:
    images, lost = described.images, sum(image.images for image in described.unusable)
    why = "".join(f"; {image.reason}" for image in described.unusable[:1])
    if (count := sum(images.values())) < _FEWEST:
        raise InputError(f"{folder} has {count} images: at least {_FEWEST} are needed{why}")
    if lost >= count:
        raise InputError(f"{folder}: {lost:,} of {lost + count:,} images are missing or damaged{why}")
    if not described.captions.get("train"):
        raise InputError(f"{folder} has only images of split {' and '.join(images)}: add some to train on")


def _gate(pictures: int) -> str:
    return (
        f"gate: {pictures:,} test images show gains of AO@10 from {least_gain(pictures):.1f} points on; the guard is a "
        f"loss of {allowed_loss(pictures)} points of recall@5, the least that they exclude"
    )


def problems(contents: Survey) -> Sequence[str]:
    """Problems that matter before the first stage runs."""
    texts = []
    lost = [image for image in contents.described.unusable if image.images]
    if lost and HEIC_FIX in lost[0].reason:
        texts.append(lost.pop(0).reason)
    if lost:
        count, share = sum(image.images for image in lost), contents.unusable_share
        allowed = f"; the profile allows it by prepare.max_unusable_share: {share}" if share is not None else ""
        texts.append(
            f"{count:,} images that {contents.file} names are missing or damaged: left out{allowed}; the first: "
            f"{lost[0].reason}"
        )
    if rows := [row for row in contents.described.unusable if not row.images]:
        texts.append(f"{len(rows):,} rows without a usable caption or image are left out; the first: {rows[0].reason}")
    if (shown := least_gain(contents.counts.test)) > _LARGE_GAIN:
        texts.append(
            f"{contents.counts.test} test images show only gains of AO@10 above {shown:.0f} points, and no gain below "
            f"{FEWEST} images: add images, or a larger prepare.counts.test"
        )
    if contents.counts.test < _DEPTH:
        texts.append(
            f"{contents.counts.test} test images, fewer than {_DEPTH} in evaluate.top_k: add images, or lower it"
        )
    if contents.bad:
        texts.append(f"{len(contents.bad)} of {contents.opened} opened images cannot be used: {contents.bad[0]}")
    return texts


def _text_facts(texts: Mapping[str, int], has_items: bool) -> tuple[list[str], int]:
    """Facts about captions that decide what can be learned from them, one line each, and the words of a long caption.

    Args:
        texts: captions with the number of pictures that have each.
        has_items: whether the products of pictures are known.
    """
    if not texts:
        return [], 0
    counts = np.array(list(texts.values()))
    lengths = np.array([word_count(text) for text in texts]).repeat(counts)
    low, median, high = (int(np.percentile(lengths, share)) for share in _PERCENTILES)
    example = textwrap.shorten(next(iter(texts)), 60, placeholder=" ...")
    lines = [f"captions: {median} words (median; 90% have {low} to {high}), such as: {example}"]
    if (one_word := float((lengths <= 1).mean())) >= _RARE:
        lines.append(f"captions of one word: {one_word:.0%}; they have no paraphrase and are not rewritten")
    pictures = Counter[str]()
    for text, count in texts.items():
        pictures[text.casefold()] += count
    shared = sum(count for count in pictures.values() if count > 1) / counts.sum()
    if shared >= _RARE and not has_items:
        lines.append(
            f"captions that several pictures share: {shared:.0%}; for several pictures of one product, name its column "
            "by --item"
        )
    found = {kind: np.array([bool(pattern.search(text)) for text in texts]) for kind, pattern in _NOISE.items()}
    found["capitals only"] = np.array([text.isupper() and len(text) > 3 for text in texts])
    shares = {kind: float((counts * has).sum() / counts.sum()) for kind, has in found.items()}
    if noise := ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items() if share >= _RARE):
        lines.append(f"noise in captions: {noise}; the model rewrites it as plain language")
    return lines, high
