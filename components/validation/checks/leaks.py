"""Evaluation sentences, which no training text may hold: this project's own, and those of published test sets."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from components.core.records import CAPTION_QUERIES, COMPARISONS, NEGATION_QUERIES, PARAPHRASE_QUERIES, SWAPS
from components.core.words import normalised

_SENTENCES = (
    ("paraphrase_queries", PARAPHRASE_QUERIES, ("query", "paraphrase")),
    ("swaps", SWAPS, ("true_caption", "false_caption")),
    ("negations", NEGATION_QUERIES, ("caption", "negation", "paraphrase")),
    ("comparisons", COMPARISONS, ("true_difference", "false_difference")),
)


def evaluation_sentences(folder: Path) -> frozenset[str]:
    """Every evaluation sentence in `folder`, normalised; a source without benchmark tables has none.

    Alt-texts of the test split are left out: two pictures may well carry the same one.

    Raises:
        InputError: a table is damaged.
    """
    found: set[str] = set()
    for name, table, columns in _SENTENCES:
        path = folder / f"{name}.parquet"
        if path.exists():
            rows = table.read(path, columns)
            found.update(normalised(text) for column in columns for text in rows.column(column).to_pylist())
    path = folder / "caption_queries.parquet"
    if path.exists():
        captions = CAPTION_QUERIES.read(path)
        plain = captions.filter(pc.equal(captions.column("register"), "plain"))
        found.update(normalised(text) for text in plain.column("text").to_pylist())
    return frozenset(found)
