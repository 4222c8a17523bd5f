"""Every benchmark table gives its sentences; alt-texts of the test split are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.errors import InputError
from components.core.records import CAPTION_QUERIES, COMPARISONS, NEGATION_QUERIES, PARAPHRASE_QUERIES, SWAPS
from components.validation.measuring.probes import evaluation_sentences


def test_sentences_of_every_table(tmp_path: Path) -> None:
    CAPTION_QUERIES.write(
        tmp_path / "caption_queries.parquet",
        {"image_id": ["i", "i"], "text": ["A plain one.", "IMG_7 alt"], "register": ["plain", "alt_text"]},
    )
    query = {"image_id": "i", "query": "Que-ry!", "paraphrase": "Other Words", "tier": "rare", "held_out": "pair"}
    PARAPHRASE_QUERIES.write(tmp_path / "paraphrase_queries.parquet", {name: [text] for name, text in query.items()})
    swap = {"image_id": "i", "true_caption": "So.", "false_caption": "Not so", "kind": "relation", "group": "left"}
    SWAPS.write(tmp_path / "swaps.parquet", {name: [text] for name, text in swap.items()})
    denied = {
        "image_id": "i", "caption": "True.", "negation": "No truth", "paraphrase": "Quite so", "cue": "no",
        "tier": "rare",
    }  # fmt: skip
    NEGATION_QUERIES.write(tmp_path / "negations.parquet", {name: [text] for name, text in denied.items()})
    compared = {
        "first_id": "i", "second_id": "j", "true_difference": "One", "false_difference": "Another", "kind": "size",
        "answer": "first",
    }  # fmt: skip
    COMPARISONS.write(tmp_path / "comparisons.parquet", {name: [text] for name, text in compared.items()})
    assert evaluation_sentences(tmp_path) == {
        "aplainone", "query", "otherwords", "so", "notso", "true", "notruth", "quiteso", "one", "another",
    }  # fmt: skip


def test_source_without_benchmark_tables(tmp_path: Path) -> None:
    assert evaluation_sentences(tmp_path) == frozenset()


def test_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "swaps.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"swaps\.parquet cannot be read"):
        evaluation_sentences(tmp_path)
