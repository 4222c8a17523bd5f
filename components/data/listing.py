"""What a folder of images says about them: captions, paraphrases and published splits, and how images become splits.

An image is known by its bytes, so that a copy of it under another name is the same image.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum
from operator import attrgetter
from pathlib import Path

from more_itertools import map_reduce

from components.core.errors import InputError
from components.core.settings import Counts, Prepare
from components.data.source import Seen, UnusableError
from components.data.splits import HELD_OUT_FIRST, drawing_order

_LETTERS_OF_A_WORD = 20
"""On average at most, blanks included: a tokenizer takes quadratic time for letters without a blank."""


@dataclass(frozen=True, slots=True)
class Line:
    """One caption of one image.

    Attributes:
        place: where it stands, such as `line 12`.
        image: path of the image's file below the folder.
        caption: the text.
        paraphrase: a person's paraphrase of it, or nothing.
        split: train, val or test as published; empty where splits are drawn here.
        weight: see `PAIRS`.
    """

    place: str
    image: str
    caption: str
    paraphrase: str = ""
    split: str = ""
    weight: float | None = None


@dataclass(frozen=True)
class Listing:
    """The captions of a folder's images.

    Attributes:
        file: what says it.
        folder: that image paths begin at.
        lines: in the file's order.
    """

    file: Path
    folder: Path
    lines: list[Line]

    def find_image(self, name: str) -> Path | None:
        """Where the image called `name` lies, or None when it is no file in the folder."""
        found = self.folder / name
        try:
            inside = found.resolve().is_relative_to(self.folder.resolve())
            return found if inside and found.is_file() else None
        except (OSError, ValueError):
            # Too long for a name, or with a byte that none has.
            return None

    def by_image(self, seen: Mapping[str, Seen]) -> dict[str, list[Line]]:
        """Image id -> its lines, in the file's order; lines of images that are not among the `seen` are left out."""
        grouped: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            if line.image in seen:
                grouped[seen[line.image].image_id].append(line)
        return grouped


def checked_line(file: Path, line: Line, settings: Prepare) -> Line:
    """The line without blanks around its texts.

    Raises:
        InputError: as `checked_caption`.
    """
    place = f"{file}: {line.place} ({line.image})"
    caption, paraphrase = checked_caption(place, line.caption, settings), line.paraphrase.strip()
    return replace(line, caption=caption, paraphrase=paraphrase and checked_caption(place, paraphrase, settings))


def checked_caption(place: str, caption: str, settings: Prepare) -> str:
    """The caption without blanks around it.

    Raises:
        UnusableError: it is empty or too long; the message begins with `place`.
    """
    caption = caption.strip()
    words, longest = len(caption.split()), settings.max_caption_words
    letters = longest * _LETTERS_OF_A_WORD
    if not any(letter.isprintable() and not letter.isspace() for letter in caption):
        raise UnusableError(f"{place} has an empty caption: write or remove it")
    if words > longest:
        raise UnusableError(
            f"{place} has a caption of {words} words: shorten it or raise prepare.max_caption_words (now {longest})"
        )
    if len(caption) > letters:
        raise UnusableError(
            f"{place} has a caption of {len(caption)} letters, {letters} are allowed: shorten it or raise "
            f"prepare.max_caption_words (now {longest})"
        )
    return caption


def image_folder(settings: Prepare) -> Path:
    """`prepare.folder`.

    Raises:
        InputError: it is not set, or not there.
    """
    if settings.folder is None:
        raise InputError(
            f"params.yaml: prepare.source '{settings.source}' needs prepare.folder: name the image folder there"
        )
    if not settings.folder.is_dir():
        raise InputError(f"image folder {settings.folder} does not exist: correct prepare.folder in params.yaml")
    return settings.folder


def share(listing: Listing, seen: Mapping[str, Seen], counts: Counts, seed: int) -> dict[str, list[list[Line]]]:
    """Split -> lines by image, of images that were `seen`.

    No image is in two splits; `test` and `val` count images, `train` counts lines.

    Published splits are kept: images are drawn from their own split, and where none is published to validate with,
    from those to train on, in `drawing_order`. An image that is published in two splits is in the one that trains less.
    A line that gives an image the caption of a line before is left out, and its weight is added to that line's; an
    image's heaviest line is its first. The user is told of both.

    Images that cannot be used may be missing from what `counts` asks for.

    Raises:
        InputError: there are too few images or lines.
    """
    found_lines = listing.by_image(seen).values()
    images = [_each_once(image) for image in found_lines]
    if repeated := sum(map(len, found_lines)) - sum(map(len, images)):
        print(f"{listing.file}: {repeated} lines left out that repeat the image and the caption of another")
    pools = _pools(listing.file, images)
    for pool in pools.values():
        random.Random(f"folder-{seed}").shuffle(pool)
    if len(pools) < len(HELD_OUT_FIRST):
        # A shuffle would draw other images once one is added, and test on images that have trained.
        pools["train"].sort(key=lambda image: drawing_order(seed, seen[image[0].image].image_id))
    found: dict[str, list[list[Line]]] = {}
    unseen = [line.image for line in listing.lines if line.image not in seen]
    for split, wanted in (("test", counts.test), ("val", counts.val)):
        pool = pools.get(split, pools["train"])
        if not pool or len(pool) + len(set(unseen)) < wanted:
            break
        found[split], pool[:] = pool[:wanted], pool[wanted:]
    else:
        found["train"] = pools["train"]
        if sum(map(len, found["train"])) + len(unseen) >= counts.train:
            return found
    raise InputError(_too_few(listing, images, counts, published=len(pools) > 1))


def _each_once(image: Iterable[Line]) -> list[Line]:
    """An image's captions, each once and the heaviest first."""
    lines = map_reduce(image, attrgetter("caption"), reducefunc=_together).values()
    return sorted(lines, key=lambda line: -(line.weight or 0))


def _together(lines: list[Line]) -> Line:
    """Lines of one image and caption as one: their weights' sum, in the split that trains least."""
    weights = [line.weight for line in lines if line.weight is not None]
    splits = {line.split for line in lines}
    split = next((split for split in HELD_OUT_FIRST if split in splits), "")
    return replace(lines[0], split=split, weight=fsum(weights) if weights else None)


def _pools(file: Path, images: Iterable[list[Line]]) -> dict[str, list[list[Line]]]:
    """Images by published split; all of them under `train` where none is published."""
    pools: dict[str, list[list[Line]]] = {"train": []}
    moved = 0
    for lines in images:
        splits = {line.split for line in lines if line.split}
        moved += len(splits) > 1
        split = next((split for split in HELD_OUT_FIRST if split in splits), "train")
        pools.setdefault(split, []).append(lines)
    if moved:
        print(f"{file}: {moved} images that are published in two splits stay out of the one that trains more")
    return pools


def _too_few(listing: Listing, images: list[list[Line]], counts: Counts, *, published: bool) -> str:
    wanted = f"prepare.counts wants {counts.test} images to test, {counts.val} to validate and {counts.train} lines"
    if published:
        lines = [line for image in images for line in image]
        have = Counter(line.split for line in lines)
        there = ", ".join(f"{have[split]} in {split}" for split in HELD_OUT_FIRST)
        return f"{listing.file} has {len(images)} images, lines: {there}; {wanted} to train: lower them"
    rest = sum(map(len, images[counts.test + counts.val :]))
    return (
        f"{listing.file} has {len(listing.lines)} lines of {len(images)} images; {wanted} of the others, which have "
        f"{rest}: lower them"
    )
