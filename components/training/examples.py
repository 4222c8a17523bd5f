"""Training rows ready for the loop: token cache by column, and which image embedding belongs to which row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.encoders.embeddings import ImageEmbeddings
from components.encoders.tokens import Tokens, tokenize
from components.errors import InputError
from components.records import PARAPHRASES
from components.training.sampler import Rows


@dataclass(frozen=True)
class Examples:
    """`tokens[column]` is `[rows, context]`; `images` and `groups` give each row's image, `[rows]`."""

    tokens: dict[str, Tokens]
    images: Rows
    groups: Rows


def load_examples(table: Path, columns: frozenset[str], embeddings: ImageEmbeddings, context_length: int) -> Examples:
    """Tokenise the text columns that a method needs and join its rows with the image embeddings.

    Raises:
        InputError: the table lacks a column, or names a pair that has no embedding.
    """
    texts = sorted(columns - {"image"})
    unknown = [column for column in texts if column not in PARAPHRASES.schema.names]
    if unknown:
        raise InputError(f"{table} has no column '{unknown[0]}' that the method needs")
    rows = PARAPHRASES.read(table, ["id", *texts])
    position = {pair: row for row, pair in enumerate(embeddings.ids)}
    ids = rows["id"].to_pylist()
    missing = [pair for pair in ids if pair not in position]
    if missing:
        raise InputError(f"{table}: pair {missing[0]} has no image embedding: run `dvc repro embed`")
    images = np.array([position[pair] for pair in ids], dtype=np.int64)
    tokens = {column: tokenize(rows[column].to_pylist(), context_length) for column in texts}
    return Examples(tokens, images, images)
