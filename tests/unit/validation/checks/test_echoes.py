"""Answers about the task are echoes, captions are not."""

from __future__ import annotations

import pytest

from components.captions.tasks import find_task
from components.validation.checks.wording import find_echo, prompt_phrases

PHRASES = prompt_phrases(find_task("paraphrase_1")) | prompt_phrases(find_task("paraphrase_2"))


@pytest.mark.parametrize(
    "text",
    [
        "Sure, a small dog on red.",
        "Here is a paraphrase: a small dog on red.",
        "Here's the rewritten caption: a dog",
        "Paraphrase: a small dog on red.",
        "**Paraphrased caption**: a small dog on red.",
        "The caption is a small dog on red.",
        "The given text describes a dog.",
        "As an AI language model I do not see pictures.",
        "I'm sorry, there is no picture.",
        "I cannot rewrite this.",
        "A small dog on red.<|im_end|>",
    ],
)
def test_lead_in(text: str) -> None:
    assert find_echo(text, "small dog red bg", PHRASES) == "lead_in"


@pytest.mark.parametrize("text", ["No dog is here, and the sentence is false.", "This caption shows no dog."])
def test_talk_about_the_task(text: str) -> None:
    assert find_echo(text, "small dog red bg", PHRASES) == "task"
    assert find_echo(text, "a sign: this caption and the sentence", PHRASES) is None


@pytest.mark.parametrize(
    "text", ["A dog, avoiding use of existing words", "You rewrite captions.", "PRESERVING the meaning"]
)
def test_prompt(text: str) -> None:
    assert find_echo(text, "small dog red bg", PHRASES) == "prompt"


@pytest.mark.parametrize(
    "text",
    [
        "Here is a small dog next to a large cat.",
        "A small dog left of a large cat, red background.",
        "The text tower of a castle.",
        "A surely small dog with a caption above it.",
        "Ice cream in the center, on red.",
    ],
)
def test_caption_is_no_echo(text: str) -> None:
    assert find_echo(text, "small dog red bg", PHRASES) is None


def test_words_of_the_source_are_no_echo() -> None:
    assert find_echo("They say: preserving the meaning", "preserving the meaning, a poster", PHRASES) is None
