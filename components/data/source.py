"""The contract of a source of image-caption pairs: samples (a picture), pairs (a picture with one caption), splits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from components.core.pictures.folder import heic_note
from components.core.pictures.rgb import HEIC_FIX
from components.core.settings import Prepare, Settings
from components.core.system.errors import InputError
from components.core.tables.files import content_hash, image_id
from components.core.tables.records import CAPTION_QUERIES
from components.core.tables.table import Table
from components.data.leaks.keys import picture_key

if TYPE_CHECKING:
    from components.data.described import Described


class UnusableError(InputError):
    """Why one image, or one of its captions, cannot be used; the text names it and the fix."""

    images = 1


class EmptyRowError(UnusableError):
    """A row that lacks its caption or its image: it is left out and counted, however many there are."""

    images = 0


@dataclass(frozen=True)
class Unusable:
    """Replaces images and rows that cannot be used in the stream of a source.

    Attributes:
        reason: names the image and the fix.
        images: number of images that `prepare.max_unusable_share` counts; 0 for a row without a usable caption.
        of: number of images read by the source, where it reads more than `prepare.counts`.
    """

    reason: str
    images: int = 1
    of: int = 0

    @staticmethod
    def by(error: UnusableError) -> Unusable:
        """The picture or caption that the error names."""
        return Unusable(str(error), error.images)


def heic_together(unusable: Sequence[Unusable]) -> list[Unusable]:
    """The same with all HEIC files as one, which is first; the others keep their order."""
    heic = [lost for lost in unusable if HEIC_FIX in lost.reason]
    if not heic:
        return list(unusable)
    count = sum(lost.images for lost in heic)
    first = heic[0].reason.partition(": " + HEIC_FIX)[0]
    rest = [lost for lost in unusable if HEIC_FIX not in lost.reason]
    return [Unusable(f"{heic_note(count)}; the first: {first}", count), *rest]


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture, with the captions that are stored next to it. One that a list names has no id before it is read.

    Attributes:
        place: its location for messages, such as `data/train-00000.parquet: row 12`, or that of its name in a list.
        file, position, size, image_id: see `components.core.tables.records.PAIRS`; a drawn picture has no file.
        captions: empty if another file has them.
        split: as published with the picture; empty if there is none, or another file has it.
        item: the product that it shows (`prepare.item`), or empty.
        raw: its encoded bytes until they have been checked (`components.data.checked_pictures`), or of a drawn picture.
    """

    place: str = ""
    file: str = ""
    position: int | None = None
    size: int | None = None
    image_id: str = ""
    key: bytes = b""
    captions: tuple[str, ...] = ()
    name: str = ""
    split: str = ""
    item: str = ""
    raw: bytes | None = field(default=None, repr=False)

    @staticmethod
    def of(
        raw: bytes, place: str = "", file: str = "", position: int | None = None, captions: tuple[str, ...] = (),
        name: str = "", split: str = "", item: str = "",
    ) -> Sample:  # fmt: skip
        """The sample of an encoded picture that has not been checked yet, or that was drawn and is in no file."""
        found = len(raw) if file else None, image_id(raw), picture_key(raw)
        return Sample(place, file, position, *found, captions, name, split, item, raw)


@dataclass(frozen=True)
class PictureChunk:
    """Pictures that are checked together.

    Attributes:
        stamp: changes if one of the pictures or its captions change.
        read: yields the samples; called in other processes, so it must be picklable. Samples without `raw` are not
            decoded.
    """

    stamp: str
    read: Callable[[], Iterable[Sample | Unusable]]
    pictures: int


@dataclass(frozen=True)
class Pair:
    """One image and one of its captions.

    Attributes:
        facts: the scene of a synthetic picture, as JSON.
        paraphrase, negation: of the caption, if the publisher gives them.
        item: the product that the image shows, if the source has several images of one.
        queries: all captions of a test or validation image, each with its paraphrase or empty, where they are known.
    """

    split: str
    image: Sample
    caption: str
    facts: str | None = None
    name: str = ""
    paraphrase: str = ""
    negation: str = ""
    weight: float | None = None
    item: str | None = None
    queries: tuple[tuple[str, str], ...] = ()

    @cached_property
    def id(self) -> str:
        """First 16 hexadecimal digits of the content's hash."""
        return content_hash(self.image.raw or self.image.image_id, self.caption)[:16]

    @property
    def image_id(self) -> str:
        """The image's id, the same in all of its pairs."""
        return self.image.image_id

    def row(self) -> dict[str, object]:
        """The pair as a row of `components.core.tables.records.PAIRS`."""
        row: dict[str, object] = {
            name: getattr(self, name) for name in ("id", "image_id", "caption", "facts", "weight", "item")
        }
        stored = self.image
        return row | {
            "image": stored.raw, "file": stored.file or None, "position": stored.position, "size": stored.size
        }  # fmt: skip


EvaluationTables = dict[str, tuple[Table, pa.Table]]
"""File name (without ending) -> the table's contract and its rows."""


def filled(table: Table, rows: Sequence[tuple[str | float, ...]]) -> tuple[Table, pa.Table]:
    """A table's contract and its rows."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(table.schema)
    return table, pa.table([list(column) for column in columns], schema=table.schema)


def caption_queries(captions: Iterable[tuple[str, str]]) -> EvaluationTables:
    """Distinct pairs of an image id and a caption, as plain queries."""
    return {"caption_queries": filled(CAPTION_QUERIES, [(*pair, "plain") for pair in dict.fromkeys(captions)])}


def pairs_as_queries(_settings: Settings, test: list[Pair]) -> EvaluationTables:
    """The caption of each test pair as a query."""
    return caption_queries((pair.image_id, pair.caption) for pair in test)


@dataclass(frozen=True)
class Source:
    """A source of pairs.

    Attributes:
        pairs: yields the pairs of all splits, in the same order for the same settings, and `Unusable` for the rest.
        evaluation: builds the benchmark tables from the test pairs; may return none.
        file: the file in `prepare.folder` that lists the pairs; None for a source that reads no folder.
        find: the file by which a folder of this source is recognised, if that is not always `file`.
        people: whether several people wrote the captions of an image, which makes them paraphrases of each other.
        watched: the file, or the folder of several files, that changes when captions change; None for a source whose
            files hold pictures too, which take long to read.
        parts: all pictures that `pairs` may read, for sources that several machines can check; the same everywhere.
        has_fields: whether its rows have fields, of which `prepare.text`, `item` and `image` name some.
    """

    pairs: Callable[[Settings], Iterator[Pair | Unusable]]
    evaluation: Callable[[Settings, list[Pair]], EvaluationTables] = field(default=lambda _settings, _pairs: {})
    file: str | None = None
    how: str = ""
    describe: Callable[[Prepare], Described] | None = None
    find: Callable[[Path], str | None] | None = None
    people: bool = False
    watched: Callable[[Path], Path] | None = None
    parts: Callable[[Prepare], Sequence[PictureChunk]] | None = None
    has_fields: bool = False

    def usable(self, settings: Settings, unusable: list[Unusable]) -> Iterator[Pair]:
        """The pairs; the others are appended to `unusable`."""
        prepare = settings.prepare
        share, wanted = prepare.max_unusable_share, prepare.counts.total
        if not self.has_fields and (given := [name for name in FIELDS if getattr(prepare, name) is not None]):
            raise InputError(f"params.yaml: source '{prepare.source}' reads no prepare.{given[0]}: remove it")
        lost, has_item = 0, prepare.item is None
        for pair in self._explained(settings, unusable):
            if isinstance(pair, Pair):
                has_item = has_item or pair.item is not None
                yield pair
                continue
            unusable.append(pair)
            lost, total = lost + pair.images, max(wanted, pair.of)
            if lost > share * total:
                raise InputError(
                    f"{pair.reason} ({lost} of at most {total} images cannot be used, prepare.max_unusable_share is "
                    f"{share})"
                )
        if not has_item:
            raise InputError(f"no row has a value of '{prepare.item}', which prepare.item names: correct or remove it")

    def _explained(self, settings: Settings, unusable: Sequence[Unusable]) -> Iterator[Pair | Unusable]:
        """`pairs`; where there are too few, rows without a usable caption may be the cause."""
        try:
            yield from self.pairs(settings)
        except InputError as error:
            rows = [one for one in unusable if not one.images]
            if not rows or isinstance(error, UnusableError):
                raise
            raise InputError(f"{error} ({len(rows)} rows are left out; the first: {rows[0].reason})") from None

    def found_in(self, folder: Path) -> str | None:
        """The file by which `folder` is recognised as one of this source, or None."""
        if self.find is not None:
            return self.find(folder)
        return self.file if self.file is not None and (folder / self.file).is_file() else None


FIELDS = ("text", "item", "image")
"""Settings of `prepare` that name fields of rows."""
HELD_OUT_FIRST = ("test", "val", "train")
_WORDS = {
    "train": ("train", "training", "restval"),
    "val": ("val", "validation", "valid", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""The words by which Hugging Face's `datasets` recognises a file's split (data_files.py), and Karpathy's `restval`."""
SPLIT_WORDS = {word: split for split, words in _WORDS.items() for word in words}
_IN_NAME = re.compile(rf"(?:^|[^a-z])({'|'.join(SPLIT_WORDS)})(?:[^a-z]|$)")


def split_of_word(place: str, word: object) -> str:
    """The split that a publisher's word means; empty for no word.

    >>> split_of_word("row 1", "Validation "), split_of_word("row 1", None)
    ('val', '')

    Raises:
        UnusableError: the word means no split; the message begins with `place`.
    """
    split = {"": "", **SPLIT_WORDS}.get(str("" if word is None else word).strip().lower())
    if split is None:
        raise UnusableError(f"{place} has split '{str(word)[:40]}': write train, val or test, or nothing")
    return split


def split_in_path(path: str) -> str:
    """The split that a file's name, or else its folder's, contains as a word; empty if neither does.

    >>> split_in_path("s3://bucket/val2017/00000.tar"), split_in_path("Test_0.parquet"), split_in_path("trained/0.tar")
    ('val', 'test', '')
    """
    *_, folder, name = ("", *path.split("/"))
    match = _IN_NAME.search(name.lower()) or _IN_NAME.search(folder.lower())
    return SPLIT_WORDS[match[1]] if match else ""


def drawing_order(seed: int, image: str) -> str:
    """The sort key by which images are drawn: the first test, the next validate, and all others train.

    It depends on the image only. One more image moves at most one from `val` to `train` and one from `test` to `val`,
    and no training image becomes a test image.
    """
    return content_hash(str(seed), image)


def drawn_at(seed: int, image: str, item: str) -> tuple[str, str]:
    """The place of an image in the order of drawing; images of one product follow each other."""
    order = drawing_order(seed, image)
    return (drawing_order(seed, content_hash(item)), order) if item else (order, "")
