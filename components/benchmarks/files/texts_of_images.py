"""Which sentence of the paraphrase queries belongs to an image that another table names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from components.benchmarks.encoding.context import EmbeddedContext
from components.core.errors import InputError
from components.core.metrics import Features
from components.core.records import PARAPHRASE_QUERIES

QUERIES_FILE = "paraphrase_queries.parquet"


def texts_of_images(
    context: EmbeddedContext, column: Literal["query", "paraphrase"], image_ids: Sequence[str], file: str
) -> Features:
    """Features of the query or paraphrase of each image `[ids, dim]`; the table's first where an image has several.

    Args:
        context: holds `paraphrase_queries.parquet`.
        column: which sentence.
        image_ids: `[ids]`, from the rows of `file`.
        file: the table that names the images.

    Raises:
        InputError: an image has none.
    """
    table = context.read(PARAPHRASE_QUERIES, QUERIES_FILE)
    known: dict[str, str] = {}
    for image, text in zip(table["image_id"].to_pylist(), table[column].to_pylist(), strict=True):
        known.setdefault(image, text)
    for row, image in enumerate(image_ids):
        if image not in known:
            raise InputError(
                f"{context.folder / file}: row {row} names image '{image}', which {QUERIES_FILE} lacks: run `dvc repro`"
            )
    return context.texts([known[image] for image in image_ids])
