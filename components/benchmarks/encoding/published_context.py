"""What published benchmarks are given: features of pictures, options, rows of files, notes of what is amiss."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.benchmarks.encoding.context import Context
from components.benchmarks.encoding.image_features import ImageFeatures, raw_encoder
from components.benchmarks.encoding.pictures import CLIP, Picture, Preparation, picture_file
from components.core.errors import InputError
from components.core.metrics import Features


@dataclass
class PublishedContext(Context):
    """One encoder before the files of one published benchmark.

    Attributes:
        seed: of everything that is drawn.
        allow_partial: go on with fewer or other rows than the authors publish, and say so in the result.
        options: what the user chose for single benchmarks, such as a judge's name.
        notes: what is amiss with the data; a result with notes is not comparable with published figures.
        image_features: the cache of image features.
        left_out: groups of metrics that have no values, each with the reason.
        lists: rows of texts that are written beside the results, by what they are: those that a prompt task can ask a
            language model about, and which image of which texts is where.
    """

    ks: tuple[int, ...] = (1, 5, 10)
    seed: int = 0
    allow_partial: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    image_features: ImageFeatures = field(default_factory=ImageFeatures)
    left_out: list[str] = field(default_factory=list)
    lists: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def images(self, pictures: Sequence[Picture], preparation: Preparation = CLIP, *, raw: bool = False) -> Features:
        """Features `[pictures, dim]`, of unit length unless `raw`, from the cache where this image tower has seen them.

        Raises:
            InputError: the encoder has no image tower, or a picture cannot be decoded.
        """
        return self.image_features.of(self.under_test, pictures, preparation=preparation, raw=raw)

    def raw_texts(self, texts: Sequence[str]) -> Features:
        """Features `[texts, dim]` as the text tower gives them.

        Raises:
            InputError: the encoder gives unit features alone.
        """
        return raw_encoder(self.under_test).raw_texts(texts)

    def image_files(self, folder: str, names: Iterable[str], preparation: Preparation = CLIP) -> Features:
        """`images` of the files `names` below the benchmark's `folder`; an `InputError` where one is missing."""
        return self.images([picture_file(self.folder / folder / name) for name in names], preparation)

    def columns(self, rows: Sequence[Mapping[str, str]], *names: str) -> Iterator[Features]:
        """Unit features `[rows, dim]` of the texts in each of the columns `names`."""
        return (self.texts([row[name] for row in rows]) for name in names)

    def expect(self, what: str, found: int, published: int) -> None:
        """Compare a count with the published one.

        Raises:
            InputError: they differ, and `allow_partial` is off.
        """
        if found != published:
            self.amiss(f"{what}: {found:,} found, {published:,} published")

    def amiss(self, what: str) -> None:
        """Note that something is not as published, such as "images/: 3 of 5,000 cannot be decoded, first 000012.jpg".

        Raises:
            InputError: `allow_partial` is off.
        """
        if not self.allow_partial:
            raise InputError(
                f"{self.folder}: {what}: complete the data, or give --allow-partial to score what is there"
            )
        self.notes.append(what)

    def read_json(self, path: str) -> Any:
        """A JSON file of the benchmark.

        Raises:
            InputError: it is missing, or no JSON.
        """
        try:
            return json.loads((self.folder / path).read_text("utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.folder / path} is missing: fetch it") from None
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            raise InputError(f"{self.folder / path} is damaged ({error}): fetch it again") from None


_NAMED = 3


def read_rows(context: PublishedContext, path: str, columns: Mapping[str, type]) -> list[dict[str, Any]]:
    """The rows of a JSON list, or of a JSON object whose values are rows, in the file's order.

    Rows that lack a column or hold another type in it are named, counted and left out where `--allow-partial` allows.

    Raises:
        InputError: the file is no JSON list or object of rows, or rows are bad and may not be left out.
    """
    content = context.read_json(path)
    found = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise InputError(f"{context.folder / path} holds no list of rows: fetch it again")
    return checked(context, path, found, columns)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a comma-separated file whose first line names the columns.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): fetch it again") from None


def some_of(numbers: Sequence[int]) -> str:
    """The first of some rows' numbers, for a message."""
    return ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")


def checked(
    context: PublishedContext, path: str, rows: Iterable[Any], columns: Mapping[str, type]
) -> list[dict[str, Any]]:
    """Those of `rows` that have every column in its type.

    Raises:
        InputError: some do not, and may not be left out; or none does.
    """
    good, bad = [], []
    for number, row in enumerate(rows):
        if isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in columns.items()):
            good.append(row)
        else:
            bad.append(number)
    if bad:
        context.amiss(f"{path}: {len(bad)} rows lack {' or '.join(columns)} (row {some_of(bad)}, counted from 0)")
    if not good:
        raise InputError(f"{context.folder / path} has no row that can be scored: fetch it again")
    return good
