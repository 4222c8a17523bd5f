"""Training rows: the tables that hold a method's columns, joined by pair, ready for the loop.

Columns are `image`, `other_image`, the text columns of the validated tables, and `neighbour.<column>`: that column
of another row whose image looks alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from components.core.column_names import NEIGHBOUR
from components.core.errors import InputError
from components.core.records import PAIRS
from components.core.text_column import TextColumn
from components.core.training_columns import HOLDERS, IMAGES, holders_of, table_file

IMAGE_IDS = {"id": "image_id", "other_id": "other_image_id"}
"""Columns of pair ids and the column of ids of these pairs' images."""


@dataclass(frozen=True)
class Columns:
    """The columns of a method, sorted by what they are.

    Attributes:
        texts: text columns of the joined table.
        images: image columns.
        neighbours: columns, of either kind, that are also wanted of a neighbour.
    """

    texts: tuple[str, ...]
    images: tuple[str, ...]
    neighbours: tuple[str, ...]

    @staticmethod
    def of(wanted: Collection[str]) -> Columns:
        """Sort the column names that a method declares.

        Raises:
            InputError: a name is unknown.
        """
        holders_of(wanted)
        bare = {name.removeprefix(NEIGHBOUR) for name in wanted}
        return Columns(
            texts=tuple(sorted(bare - set(IMAGES))),
            images=tuple(sorted(bare & set(IMAGES))),
            neighbours=tuple(sorted(name.removeprefix(NEIGHBOUR) for name in wanted if name.startswith(NEIGHBOUR))),
        )


def join_rows(wanted: Collection[str], validated: Path, pairs: Path) -> pd.DataFrame:
    """One row per combination of samples of a pair that has all the `wanted` columns; `id` first.

    Captions alone come from the pairs; otherwise a row must be in every table, at or below `validated`, that holds a
    wanted column.

    Raises:
        InputError: a column is unknown, a table is missing or damaged, or no pair is in all tables.
    """
    columns = Columns.of(wanted)
    needed = {*columns.texts, *(IMAGES[image] for image in columns.images)} - {"id", "caption"}
    joined: pd.DataFrame | None = None
    used = []
    for name, (table, only) in HOLDERS.items():
        chosen = [column for column in only if column in needed]
        if not chosen:
            continue
        path = table_file(validated, name)
        caption = ["caption"] if joined is None else []
        found = table.read(path, ["id", *caption, *chosen]).to_pandas()
        joined = found if joined is None else joined.merge(found, on="id", how="inner")
        used.append(str(path))
    if joined is None:
        captions: pd.DataFrame = PAIRS.read(pairs, ["id", "caption"]).to_pandas()
        return captions
    if joined.empty:
        raise InputError(f"no pair is in all of {', '.join(used)}: raise synthesize.captions and run `dvc repro`")
    return joined


def with_image_ids(rows: pd.DataFrame, ids: TextColumn, image_ids: TextColumn) -> pd.DataFrame:
    """`rows` with the column `image_id`, and `other_image_id` where they are about two pairs.

    Args:
        ids: of pairs.
        image_ids: of their images.

    Raises:
        InputError: a row is about none of these pairs.
    """
    named = {}
    for pair, image in IMAGE_IDS.items():
        if pair in rows:
            places = ids.places(rows[pair])
            for missing in rows.loc[places < 0, pair][:1]:
                raise InputError(f"training pair {missing} has no image embedding: run `dvc repro`")
            named[image] = pd.Series(image_ids.arrow.take(places), dtype=str, index=rows.index)
    return rows.assign(**named)


def input_files(wanted: Collection[str], validated: Path, pairs: Path) -> dict[str, Path]:
    """The files that `join_rows` reads, by name."""
    used = {name: table_file(validated, name) for name in holders_of(wanted)}
    return used or {"pairs": pairs}
