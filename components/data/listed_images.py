"""Pairs of a folder whose images a file lists; sources that differ only by that file's format share what is here.

Of an image to test or to validate with, the first caption makes the pair; the other captions of a test image are
queries too. An image to train on makes a pair with each of its captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from more_itertools import chunked

from components.core.errors import InputError
from components.core.files import content_hash
from components.core.records import PARAPHRASE_QUERIES
from components.core.settings import Prepare, Settings
from components.data.checked_pictures import Part, Sample, checked
from components.data.listing import Line, Listing, share
from components.data.people.tables import evaluation_tables
from components.data.source import (
    Described,
    EvaluationTables,
    Pair,
    Seen,
    Source,
    Unusable,
    caption_queries,
    filled,
)

_PART = 512
"""Pictures that are checked together."""
Read = Callable[[Prepare], Listing]


def listed_source(
    read: Read, find: Callable[[Path], str | None], file: str, how: str, *, people: bool = False
) -> Source:
    """A source of the images that `read` lists.

    Args:
        read: gives the listing of `prepare.folder`.
        find: tells whether a folder is such a source, see `Source`.
        file: what lists the images.
        how: how a user comes by it.
        people: whether an image's captions are several people's.
    """
    return Source(
        pairs=lambda settings: _pairs(settings, read(settings.prepare)),
        evaluation=lambda settings, test: _evaluation(test, read(settings.prepare), settings.prepare, people),
        describe=lambda settings: _describe(read(settings)),
        find=find,
        file=file,
        how=how,
        people=people,
        parts=lambda settings: _parts(read(settings)),
    )


def _describe(listing: Listing) -> Described:
    captions: dict[str, Counter[str]] = {}
    for line in listing.lines:
        captions.setdefault(line.split or "train", Counter())[line.image] += 1
    names = {line.image: line.place for line in reversed(listing.lines)}
    found = {name: path for name in names if (path := listing.find_image(name)) is not None}
    lost = [_lost(listing, name, place) for name, place in names.items() if name not in found]
    return Described(
        images={split: len(counted) for split, counted in captions.items()},
        captions={split: counted.total() for split, counted in captions.items()},
        most_captions=max((max(counted.values()) for counted in captions.values()), default=0),
        pictures=[(str(path), path.read_bytes) for path in found.values()],
        unusable=lost,
        paraphrases=sum(bool(line.paraphrase) for line in listing.lines),
    )


def look(listing: Listing, settings: Prepare) -> tuple[dict[str, Seen], list[Unusable]]:
    """What the listing calls images: those that can be used, by name, and the others."""
    parts = _parts(listing)
    of = sum(part.pictures for part in parts)
    seen: dict[str, Seen] = {}
    unusable: list[Unusable] = []
    for one in checked(parts, settings):
        if isinstance(one, Seen):
            seen[one.name] = one
        else:
            unusable.append(replace(one, of=of))
    return seen, unusable


def look_at(files: Sequence[Path], settings: Prepare) -> list[Seen]:
    """The pictures of these files, in their order; one that comes again is read once.

    Raises:
        InputError: one is missing or cannot be used.
    """
    distinct = list(dict.fromkeys(files))
    parts = [
        Part(_stamp(Path(), map(str, block)), partial(_read_files, block), len(block))
        for block in chunked(distinct, _PART)
    ]
    seen: dict[str, Seen] = {}
    for one in checked(parts, settings):
        if isinstance(one, Unusable):
            raise InputError(one.reason)
        seen[one.file] = one
    return [seen[str(file)] for file in files]


def _parts(listing: Listing) -> list[Part]:
    """Each image that the listing names, once, in parts."""
    first = {line.image: line for line in reversed(listing.lines)}
    named = [(name, first[name].place) for name in dict.fromkeys(line.image for line in listing.lines)]
    return [_part(listing, block) for block in chunked(named, _PART)]


def _part(listing: Listing, named: list[tuple[str, str]]) -> Part:
    stamp = _stamp(listing.folder, (name for name, _ in named))
    # Other processes need no lines.
    return Part(stamp, partial(_read_named, replace(listing, lines=[]), named), len(named))


def _stamp(folder: Path, names: Iterable[str]) -> str:
    """Of the files' names as they are spelled, which rows are known by, their sizes and times of their last change,
    which nobody can set back."""
    return content_hash(str(folder), *(f"{name} {_state(folder / name)}" for name in names))


def _state(file: Path) -> str:
    try:
        found = file.stat()
    except (OSError, ValueError):
        return "missing"
    return f"{found.st_size} {found.st_ctime_ns}"


def _read_named(listing: Listing, named: list[tuple[str, str]]) -> Iterator[Sample | Unusable]:
    for name, place in named:
        path = listing.find_image(name)
        if path is None:
            yield _lost(listing, name, place)
        else:
            yield Sample(str(path), path.read_bytes(), str(path), None, name=name)


def _lost(listing: Listing, name: str, place: str) -> Unusable:
    found, folder = listing.folder / name, listing.folder
    why = f"is not in {folder}: add or remove it"
    if _state(found) != "missing" and not found.resolve().is_relative_to(folder.resolve()):
        why = f"leads out of {folder}, as a link may not: copy the picture, or make {folder} itself the link"
    return Unusable(f"{listing.file}: {place} names {name}, which {why}")


def _read_files(files: Sequence[Path]) -> Iterator[Sample]:
    for path in files:
        yield Sample(str(path), path.read_bytes(), str(path), None, name=path.name)


def _pairs(settings: Settings, listing: Listing) -> Iterator[Pair | Unusable]:
    seen, unusable = look(listing, settings.prepare)
    yield from unusable
    shared = share(listing, seen, settings.prepare.counts, settings.world.seed)
    for split in ("test", "val"):
        yield from _captioned(split, [lines[:1] for lines in shared[split]], listing, seen)
    yield from islice(_captioned("train", shared["train"], listing, seen), settings.prepare.counts.train)


def _captioned(split: str, images: list[list[Line]], listing: Listing, seen: Mapping[str, Seen]) -> Iterator[Pair]:
    """Each image with each of its captions; `name` is its path from the folder on, which may say whose images these
    are."""
    for lines in images:
        for line in lines:
            name = f"{listing.folder.name}/{line.image}"
            yield Pair(split, seen[lines[0].image], line.caption, name=name, weight=line.weight)


def _evaluation(test: list[Pair], listing: Listing, settings: Prepare, people: bool) -> EvaluationTables:
    """Every caption of the test images as a query, and the paraphrases that people wrote of them."""
    lines_of = listing.by_image(look(listing, settings)[0])
    lines = [(pair.image_id, line) for pair in test for line in lines_of[pair.image_id]]
    tables = caption_queries((image, line.caption) for image, line in lines)
    if people:
        told = {image: list(dict.fromkeys(line.caption for line in lines_of[image])) for image in dict(lines)}
        return tables | evaluation_tables(told)
    rows = [(image, line.caption, line.paraphrase, "all", "image") for image, line in lines if line.paraphrase]
    return tables | {"paraphrase_queries": filled(PARAPHRASE_QUERIES, rows)} if rows else tables
