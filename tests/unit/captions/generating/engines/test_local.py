"""The local engine: every row is answered as if it were the only one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions.generating.engines import local
from components.captions.generating.engines.local import EmbeddedOptions, LocalEngine, shared_length
from components.captions.prompting.parsing import first_line
from components.captions.prompting.request import COMPLETION, PICTURE, PromptPicture, Request, Sampling
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from tests.support.tiny_language_model import save_tiny_language_model

DRAWN, LIKELIEST = Sampling(1.0, 0.9, 12), Sampling(0.0, 1.0, 12)
SHOWN = "one word for a big dog is hound, and one word for a small cat is kitten. "


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_language_model(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(autouse=True)
def _float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bfloat16 is native the engine uses it, and sums in an order that depends on the batch."""
    monkeypatch.setattr(local, "bf16_is_native", lambda _device: False)


def _engine(base: str, batch_size: int = 64) -> LocalEngine:
    return LocalEngine(EmbeddedOptions(base=base, batch_size=batch_size))


def _requests(model: str, shared: str) -> list[Request]:
    """Chats of many lengths, drawn and not, which begin with the same text; or without one, also completions."""
    texts = [shared + "a dog " * (number % 7 + 1) + str(number) for number in range(24)]
    roles = ["user", "user", "user"] if shared else [COMPLETION, "user", "user"]
    return [
        Request("t", ((roles[number % 3], text),), model, (DRAWN, LIKELIEST)[number % 2], 0)
        for number, text in enumerate(texts)
    ]


def _answers(engine: LocalEngine, requests: list[Request]) -> dict[str, str | None]:
    return {reply.request.key: reply.answer for batch in engine.answer(iter(requests)) for reply in batch}


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")
    known = file_hash(file)
    assert LocalEngine(EmbeddedOptions(base=str(file), base_sha256=known)).model == f"model.gguf@{known[:16]}"
    file.write_bytes(b"others")
    with pytest.raises(InputError, match=rf"model\.gguf is not the file with SHA-256 {known[:12]}"):
        _ = LocalEngine(EmbeddedOptions(base=str(file), base_sha256=known)).model


@pytest.mark.parametrize("shared", ["", SHOWN], ids=["no common part", "common part"])
def test_an_answer_does_not_depend_on_its_neighbours(base: str, monkeypatch: pytest.MonkeyPatch, shared: str) -> None:
    found: list[int] = []
    monkeypatch.setattr(local, "shared_length", lambda prompts: found.append(shared_length(prompts)) or found[-1])
    requests = _requests(_engine(base).model, shared)
    together, lengths = _answers(_engine(base), requests), found[:]
    alone = _answers(_engine(base, 1), requests)
    assert together == alone
    assert len(set(together.values())) > 8
    assert _answers(_engine(base, 5), requests[::-1]) == alone
    assert (max(lengths) > len(shared)) == bool(shared)


def test_repeated_questions_differ_and_a_chat_has_its_templates_tokens_alone(base: str) -> None:
    engine = _engine(base)
    asked = [Request("t", (("user", "a dog"),), engine.model, DRAWN, attempt) for attempt in range(8)]
    assert len(set(_answers(engine, asked).values())) == 8
    assert _answers(engine, asked) == _answers(_engine(base), asked)
    [replies] = engine.answer([Request("t", (("user", "a dog"),), engine.model, LIKELIEST, 0)])
    written = Request("t", ((COMPLETION, "<user>a dog\n<assistant>"),), engine.model, LIKELIEST, 0)
    [completed] = engine.answer([written])
    assert replies[0].answer == completed[0].answer, "both begin with one <s>"
    shown = Request("judge", (("user", PICTURE),), engine.model, DRAWN, 0, (PromptPicture(b"png", "image/png"),))
    with pytest.raises(InputError, match=r"task 'judge' shows pictures: set its `pictures` to false"):
        list(engine.answer([shown]))


@pytest.mark.parametrize("sampling", [DRAWN, LIKELIEST])
def test_an_answer_without_its_end_is_asked_once_more_with_more_tokens(base: str, sampling: Sampling) -> None:
    engine = _engine(base)
    asked = [Request("t", (("user", f"a dog {n}"),), engine.model, sampling, 0) for n in range(6)]
    plain = _answers(engine, asked)
    found = {
        reply.request.key: reply
        for batch in engine.answer(replace(request, parse=first_line) for request in asked)
        for reply in batch
    }
    assert found.keys() == plain.keys()
    for key, text in plain.items():
        reply = found[key]
        if reply.answer is None:
            assert str(reply.failure).startswith(f"the answer was cut at {4 * sampling.max_tokens} tokens")
        else:
            assert reply.answer.startswith(text or "")
    # What is read of it is complete without more tokens, so none are drawn.
    judged = [replace(request, parse=lambda _answer: "yes") for request in asked]
    assert _answers(engine, judged) == plain
    assert any(reply.answer is None for reply in found.values())


@given(st.lists(st.integers(0, 1), max_size=60), st.lists(st.lists(st.integers(2, 3), max_size=3), max_size=4))
def test_the_shared_part_is_common_and_leaves_something_of_each(first: list[int], ends: list[list[int]]) -> None:
    prompts = [[*first, *end] for end in ends if first or end]
    length = shared_length(prompts)
    assert length == 0 or length >= 32
    assert all(prompt[:length] == prompts[0][:length] and len(prompt) > length for prompt in prompts)
    if len(prompts) > 1 and len(first) > 32:
        assert length >= 32
