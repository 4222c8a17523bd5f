"""What a source of image-caption pairs promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from components.core.errors import InputError
from components.core.files import content_hash, image_id
from components.core.records import CAPTION_QUERIES
from components.core.settings import Prepare, Settings
from components.core.table import Table

if TYPE_CHECKING:
    from components.data.checked_pictures import Part


@dataclass(frozen=True, slots=True)
class Seen:
    """A picture that stays where it is, and can be used.

    Attributes:
        place: where it is, for messages.
        file, position, size, image_id: see `components.core.records.PAIRS`.
        key: see `components.data.leaks.keys.picture_key`.
        captions: those that stand with it; none where another file has them.
        name: of its file, where it had one.
        split: as published with it; empty where none is, or where another file says it.
    """

    place: str
    file: str
    position: int | None
    size: int | None
    image_id: str
    key: bytes
    captions: tuple[str, ...] = ()
    name: str = ""
    split: str = ""


@dataclass(frozen=True)
class Pair:
    """One image and its caption; `name` is the path of the image's file, where it has one.

    `image` is where the picture lies, or its encoded bytes where it lies nowhere.
    `paraphrase` and `negation` are the caption's as its publisher gives them, where it does; `weight` as in `PAIRS`.
    """

    split: str
    image: bytes | Seen
    caption: str
    facts: str | None = None
    name: str = ""
    paraphrase: str = ""
    negation: str = ""
    weight: float | None = None

    @cached_property
    def id(self) -> str:
        """First 16 hexadecimal digits of the content's hash."""
        image = self.image if isinstance(self.image, bytes) else self.image.image_id
        return content_hash(image, self.caption)[:16]

    @cached_property
    def image_id(self) -> str:
        """The image's, the same in all of its pairs."""
        return image_id(self.image) if isinstance(self.image, bytes) else self.image.image_id

    def row(self) -> dict[str, object]:
        """The pair as a row of `components.core.records.PAIRS`."""
        told: dict[str, object] = {
            "id": self.id,
            "image_id": self.image_id,
            "caption": self.caption,
            "facts": self.facts,
            "weight": self.weight,
        }
        if isinstance(self.image, bytes):
            return told | {"image": self.image, "file": None, "position": None, "size": None}
        seen = self.image
        return told | {"image": None, "file": seen.file, "position": seen.position, "size": seen.size}


class UnusableError(InputError):
    """Why one image, or one of its captions, cannot be used; the text names it and what to do."""


@dataclass(frozen=True)
class Unusable:
    """Stands in a source's pairs for what cannot be used.

    Attributes:
        reason: names it and says what to do.
        images: how many were lost at once.
        of: how many the source looked at, where these are more than it was asked for.
    """

    reason: str
    images: int = 1
    of: int = 0


EvaluationTables = dict[str, tuple[Table, pa.Table]]
"""File name (without ending) -> the table's contract and its rows."""


def filled(table: Table, rows: Sequence[tuple[str | float, ...]]) -> tuple[Table, pa.Table]:
    """A table's contract and its rows."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(table.schema)
    return table, pa.table([list(column) for column in columns], schema=table.schema)


def caption_queries(told: Iterable[tuple[str, str]]) -> EvaluationTables:
    """Each image id with a caption of it, said once, as plain queries."""
    return {"caption_queries": filled(CAPTION_QUERIES, [(*pair, "plain") for pair in dict.fromkeys(told)])}


@dataclass(frozen=True)
class Described:
    """What a folder says of its images, before any is opened.

    Attributes:
        images: how many, by split; all under `train` where no split is published.
        captions: how many captions these have.
        most_captions: of one image.
        pictures: place and bytes of images that may be opened.
        unusable: images that are named and not there, or cannot be read.
        paraphrases: how many captions have a paraphrase by a person.
    """

    images: Mapping[str, int]
    captions: Mapping[str, int]
    most_captions: int
    pictures: Sequence[tuple[str, Callable[[], bytes]]]
    unusable: Sequence[Unusable] = ()
    paraphrases: int = 0

    @property
    def published(self) -> bool:
        """Whether splits are."""
        return set(self.images) != {"train"}


@dataclass(frozen=True)
class Source:
    """Where pairs come from.

    Attributes:
        pairs: yields the pairs of all splits, in the same order for the same settings, and what cannot be one.
        evaluation: builds the benchmark tables from the test pairs; may return none.
        file: what lists the pairs in `prepare.folder`; None for a source that reads no folder.
        how: how a user comes by that file.
        describe: what `prepare.folder` holds, for sources that `cliptune import` knows.
        find: the file by which a folder is known as one of this source, where that is not always `file`.
        people: whether an image's captions are several people's, and so paraphrases of a kind.
        parts: all pictures that `pairs` may look at, for sources that many machines can check; the same everywhere.
    """

    pairs: Callable[[Settings], Iterator[Pair | Unusable]]
    evaluation: Callable[[Settings, list[Pair]], EvaluationTables] = field(default=lambda _settings, _pairs: {})
    file: str | None = None
    how: str = ""
    describe: Callable[[Prepare], Described] | None = None
    find: Callable[[Path], str | None] | None = None
    people: bool = False
    parts: Callable[[Prepare], Sequence[Part]] | None = None

    def usable(self, settings: Settings, unusable: list[Unusable]) -> Iterator[Pair]:
        """The pairs; what cannot be one goes to `unusable`.

        Raises:
            InputError: as `pairs`, or more images cannot be used than `prepare.max_unusable_share` allows.
        """
        share, wanted = settings.prepare.max_unusable_share, settings.prepare.counts.total
        lost = 0
        for one in self.pairs(settings):
            if isinstance(one, Pair):
                yield one
                continue
            unusable.append(one)
            lost, most = lost + one.images, max(wanted, one.of)
            if lost > share * most:
                raise InputError(
                    f"{one.reason} ({lost} of at most {most} images cannot be used, prepare.max_unusable_share is "
                    f"{share})"
                )

    def found_in(self, folder: Path) -> str | None:
        """The file by which `folder` is known as one of this source, or None."""
        if self.find is not None:
            return self.find(folder)
        return self.file if self.file is not None and (folder / self.file).is_file() else None
