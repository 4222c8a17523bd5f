"""Prompts that begin alike are answered as if each were read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions.engines import embedded
from components.captions.engines.embedded import EmbeddedEngine, EmbeddedOptions, shared_length
from components.captions.request import Request, Sampling
from tests.support.tiny_language_model import save_tiny_language_model

SHOWN = "one word for a big dog is hound, and one word for a small cat is kitten. "


@pytest.mark.parametrize("sampling", [Sampling(0.0, 1.0, 12), Sampling(1.0, 0.9, 12)])
def test_answers_are_those_of_whole_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: Sampling
) -> None:
    monkeypatch.setattr(embedded, "bf16_is_native", lambda _device: False)
    base = str(save_tiny_language_model(tmp_path / "tiny"))
    shared: list[int] = []
    real = embedded.shared_length

    def spied(prompts: list[list[int]]) -> int:
        shared.append(real(prompts))
        return shared[-1]

    monkeypatch.setattr(embedded, "shared_length", spied)
    answers = []
    for batch_size in (16, 1):
        engine = EmbeddedEngine(EmbeddedOptions(base=base, batch_size=batch_size))
        asked = [
            Request("t", (("user", SHOWN + "word " * (n % 5) + str(n)),), engine.model, sampling, 0) for n in range(16)
        ]
        answers.append({reply.request.key: reply.answer for batch in engine.answer(asked) for reply in batch})
    assert shared[0] > len(SHOWN)
    assert shared[1:] == [0] * 16
    assert answers[0] == answers[1]
    assert len(set(answers[0].values())) > 8


@given(st.lists(st.integers(0, 1), max_size=60), st.lists(st.lists(st.integers(2, 3), max_size=3), max_size=4))
def test_the_shared_part_is_common_and_leaves_something_of_each(first: list[int], ends: list[list[int]]) -> None:
    prompts = [[*first, *end] for end in ends if first or end]
    length = shared_length(prompts)
    assert length == 0 or length >= 32
    assert all(prompt[:length] == prompts[0][:length] and len(prompt) > length for prompt in prompts)
    if len(prompts) > 1 and len(first) > 32:
        assert length >= 32
