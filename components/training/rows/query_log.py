"""What a query log says of training rows: how much each counts, and which rows of a batch are true of one another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from components.core.records import PAIRS

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class QueryLog:
    """Facts of the rows of a source.

    Attributes:
        queries: the query of each row, `[rows]`.
        images: the image of each row, `[rows]`.
        clicked: which image was ever clicked for which query, sparse `[images, queries]`.
        weights: of each row's pair, `[rows]`; None where all rows count the same.
    """

    queries: Rows
    images: Rows
    clicked: Any
    weights: npt.NDArray[np.float64] | None

    @staticmethod
    def read(pairs: Path, ids: Iterable[str], *, weighted: bool) -> QueryLog | None:
        """What the table `pairs` says of rows about the pairs `ids`; None where none of its pairs has a weight.

        Clicks count for all pairs of the table, whether or not they became rows.

        Raises:
            InputError: the table is missing or damaged.
        """
        from scipy.sparse import csr_array

        if not has_weights(pairs):
            return None
        table = PAIRS.read(pairs, ["id", "image_id", "caption", "weight"]).to_pandas()
        # A query that is typed in another case or with other spaces is the same.
        queries, _ = pd.factorize(table["caption"].map(lambda query: " ".join(query.casefold().split())))
        images, _ = pd.factorize(table["image_id"])
        clicked = csr_array((np.ones(len(table), np.bool_), (images, queries)))
        places = table["id"].drop_duplicates()
        rows = pd.Series(places.index, index=places)[list(ids)].to_numpy()
        weights = table["weight"].fillna(1.0).to_numpy()[rows] if weighted else None
        return QueryLog(queries[rows], images[rows], clicked, weights)

    def weights_of(self, batch: Rows, own: slice) -> Tensor | None:
        """Weights of a rank's `own` rows of a global batch, `[own]`.

        Here they are made relative to the global batch's mean, so that a mean of losses times weights is their
        weighted mean; whatever the log counts in, all rows that an epoch visits weigh 1 on average.
        """
        if self.weights is None:
            return None
        weights = self.weights[batch]
        return torch.from_numpy(weights[own] / weights.mean()).float()

    def alike(self, batch: Rows, own: slice) -> Tensor:
        """Which rows of a global batch are no negatives of a rank's `own` rows, bool `[own, batch]`.

        They are those whose image was clicked for the row's query, and those for whose query the row's image was: a
        query's images are not told from one another, whichever of their queries stands beside them.
        """
        # Each once, and by image: a query that half of all users type has as many images, an image has few queries.
        images, of_image = np.unique(self.images[batch], return_inverse=True)
        queries, of_query = np.unique(self.queries[batch], return_inverse=True)
        clicked = self.clicked[images][:, queries].toarray()[of_image][:, of_query]
        found = clicked[own] | clicked.T[own]
        found[np.arange(len(found)), np.arange(len(batch))[own]] = False
        return torch.from_numpy(found)


def has_weights(pairs: Path) -> bool:
    """Whether any pair of the table `pairs` has a weight, as those of a query log have.

    Raises:
        InputError: the table is missing or damaged.
    """
    column = PAIRS.read(pairs, ["weight"])["weight"]
    return bool(column.null_count < len(column))
