"""Training rows: the tables with a method's columns joined by pair, and the facts of a query log about them.

Columns are `image`, `other_image`, the text columns of the validated tables, and `neighbour.<column>`: that column
of another row with a similar image.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from components.core.system.errors import InputError
from components.core.tables import NEIGHBOUR
from components.core.tables.arrays import TextColumn
from components.core.tables.records import PAIRS
from components.core.tables.training_columns import HOLDERS, IMAGES, holders_of, table_file

Rows = npt.NDArray[np.int64]

IMAGE_IDS = {"id": "image_id", "other_id": "other_image_id"}
"""Columns of pair ids -> columns of their images' ids."""


def join_rows(wanted: Collection[str], validated: Path, pairs: Path) -> pd.DataFrame:
    """One row per combination of samples of a pair that has all the `wanted` columns; `id` first.

    Rows come from the pairs if only captions are wanted, else a row must be in every table, at or below `validated`,
    with a wanted column. They are in the order of the first table, then of the second, and so on.
    """
    import duckdb

    needed = {IMAGES.get(name, name) for name in (column.removeprefix(NEIGHBOUR) for column in wanted)}
    files = {name: table_file(validated, name) for name in holders_of(wanted)}
    if not files:
        captions: pd.DataFrame = PAIRS.read(pairs, ["id", "caption"]).to_pandas()
        return captions
    shown, linked = ["id", "caption"], ""
    with TemporaryDirectory() as spilled, duckdb.connect(config={"temp_directory": spilled}) as connection:
        for name, path in files.items():
            table, only = HOLDERS[name]
            own = [column for column in only if column in needed]
            rows = table.read(path, ["id", *([] if linked else ["caption"]), *own])
            connection.register(name, rows.append_column(f"row_{name}", [np.arange(len(rows))]))
            shown += own
            linked += f" join {name} using (id)" if linked else name
        order = ", ".join(f"row_{name}" for name in files)
        joined: pd.DataFrame = (
            connection.sql(f"select {', '.join(shown)} from {linked} order by {order}").to_arrow_table().to_pandas()
        )
    if joined.empty:
        paths = ", ".join(map(str, files.values()))
        raise InputError(f"no pair is in all of {paths}: raise synthesize.max_captions and run `dvc repro`")
    return joined


def with_image_ids(rows: pd.DataFrame, ids: TextColumn, image_ids: TextColumn) -> pd.DataFrame:
    """`rows` with `image_id`, and `other_image_id` if they are about two pairs; InputError for an unknown pair."""
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
    files = {name: table_file(validated, name) for name in holders_of(wanted)}
    return files or {"pairs": pairs}


@dataclass(frozen=True)
class QueryLog:
    """Facts about the rows of a source whose images belong to several captions: of a query log, or of items.

    Attributes:
        queries: the query of each row, `[rows]`.
        images: the image of each row, `[rows]`.
        clicked: images that were ever clicked for a query, sparse bool `[images, queries]`.
        weights: of each row's pair, `[rows]`; None for equal weights.
    """

    queries: Rows
    images: Rows
    clicked: Any
    weights: npt.NDArray[np.float64] | None

    @staticmethod
    def read(pairs: Path, ids: Iterable[str], *, weighted: bool) -> QueryLog | None:
        """The facts about rows of the pairs `ids`; None if no pair of the table `pairs` has a weight or an item.

        The clicks of all pairs of the table count, also of those without a row. An item's captions count as queries for
        which all its images were clicked.
        """
        from scipy.sparse import csr_array

        table = PAIRS.read(pairs, ["id", "image_id", "caption", "weight", "item"]).to_pandas()
        if table[["weight", "item"]].isna().all(axis=None):
            return None
        queries, _ = pd.factorize(table["caption"].map(lambda query: " ".join(query.casefold().split())))
        images, _ = pd.factorize(table["image_id"])
        clicked = csr_array((np.ones(len(table), np.bool_), (images, queries)))
        of_items = table.index[table["item"].notna()]
        if len(of_items):
            items, names = pd.factorize(table["item"][of_items])
            ones = np.ones(len(of_items), np.int32)
            of_image = csr_array((ones, (images[of_items], items)), shape=(clicked.shape[0], len(names)))
            of_query = csr_array((ones, (items, queries[of_items])), shape=(len(names), clicked.shape[1]))
            clicked = (clicked + (of_image @ of_query).astype(np.bool_)).tocsr()
        places = table["id"].drop_duplicates()
        rows = pd.Series(places.index, index=places)[list(ids)].to_numpy()
        has = weighted and table["weight"].notna().any()
        weights = table["weight"].fillna(1.0).to_numpy()[rows] if has else None
        return QueryLog(queries[rows], images[rows], clicked, weights)

    def weights_of(self, batch: Rows, own: slice) -> Tensor | None:
        """Weights of a rank's `own` rows of a global batch, `[own]`.

        They are divided by the global batch's mean, so that a mean of losses times weights is their weighted mean.
        """
        if self.weights is None:
            return None
        weights = self.weights[batch]
        return torch.from_numpy(weights[own] / weights.mean()).float()

    def alike(self, batch: Rows, own: slice) -> Tensor:
        """Rows of a global batch that are not negatives of a rank's `own` rows, bool `[own, batch]`.

        The image of one was clicked for the query of the other.
        """
        # Of distinct images and queries only: a frequent query has very many images.
        images, of_image = np.unique(self.images[batch], return_inverse=True)
        queries, of_query = np.unique(self.queries[batch], return_inverse=True)
        clicked = self.clicked[images][:, queries].toarray()[of_image][:, of_query]
        alike = clicked[own] | clicked.T[own]
        alike[np.arange(len(alike)), np.arange(len(batch))[own]] = False
        return torch.from_numpy(alike)


def has_weights(pairs: Path) -> bool:
    """Whether any pair of the table `pairs` has a weight; raises InputError if the table is missing or damaged."""
    column = PAIRS.read(pairs, ["weight"])["weight"]
    return bool(column.null_count < len(column))
