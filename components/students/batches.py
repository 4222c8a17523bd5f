"""A student's lessons as token ids, and the batches they are trained in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jinja2 import TemplateError
from more_itertools import chunked
from torch import Tensor

from components.captions.prompts.disarm import disarm
from components.captions.request import COMPLETION, Chat
from components.core.errors import InputError
from components.core.progress import track
from components.students.teacher import Lesson

IGNORED = -100
_BLOCK, _LENGTH_STEP, _TOGETHER = 16, 32, 1000


class Example(NamedTuple):
    """Token ids of prompt and answer, and how many of them are the prompt's."""

    ids: npt.NDArray[np.int32]
    prompt: int


@dataclass(frozen=True)
class Batch:
    """Token ids, labels (`IGNORED` everywhere but at the answers) and attention mask, `[rows, length]` each."""

    ids: Tensor
    labels: Tensor
    mask: Tensor


def chat_of(lesson: Lesson) -> Chat:
    """The question of a lesson, as engines are asked it."""
    return lesson.task.render({name: disarm(text) for name, text in lesson.inputs.items()}, lesson.prompt)


def encode(tokenizer: Any, lessons: Sequence[Lesson], *, shown: bool = True) -> list[Example]:
    """The lessons as the model sees them: the question as engines render it, then the answer and what ends it.

    Args:
        shown: whether a bar shows the progress.

    Raises:
        InputError: the tokenizer has no chat template, or one that cannot render these chats.
    """
    blocks = list(chunked(lessons, _TOGETHER))
    return [
        example
        for block in (track(blocks, "tokens", len(blocks), "block") if shown else blocks)
        for example in _examples(tokenizer, [_texts(tokenizer, lesson) for lesson in block])
    ]


def _examples(tokenizer: Any, texts: Sequence[tuple[str, str, bool]]) -> list[Example]:
    # As the engine does: a template has written the special tokens already, before a plain text they are wanted.
    prompts = [tokenizer(prompt, add_special_tokens=plain)["input_ids"] for prompt, _, plain in texts]
    answers = tokenizer([answer for _, answer, _ in texts], add_special_tokens=False)["input_ids"]
    return [
        Example(np.array(prompt + answer, dtype=np.int32), len(prompt))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


def _texts(tokenizer: Any, lesson: Lesson) -> tuple[str, str, bool]:
    """The prompt, what shall follow it, and whether it is plain text."""
    messages = chat_of(lesson)
    if messages[0]["role"] == COMPLETION:
        prompt = messages[0]["content"]
        return prompt, f"{'' if prompt[-1:].isspace() else ' '}{lesson.answer}{tokenizer.eos_token}", True
    answered = [*messages, {"role": "assistant", "content": lesson.answer}]
    try:
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(answered, tokenize=False)
    except (TemplateError, ValueError) as error:
        fault = f"the base's chat template cannot render task '{lesson.task.name}' ({str(error).splitlines()[0]})"
        raise InputError(f"{fault}: choose an instruction-tuned base that takes a system message") from None
    if not whole.startswith(prompt):
        raise InputError("the base's chat template changes a question once it is answered: choose another base")
    return prompt, whole.removeprefix(prompt), False


def batches_of_like_length(examples: Sequence[Example], batch_size: int, rng: random.Random) -> list[list[Example]]:
    """Whole batches in random order, drawn so that little is spent on padding; the rest of the examples is left out.

    Sorting only within blocks of some batches keeps the batches of every epoch different.
    """
    order, block = rng.sample(examples, len(examples)), _BLOCK * batch_size
    blocks = (
        sorted(order[start : start + block], key=lambda example: len(example.ids))
        for start in range(0, len(order), block)
    )
    batches = [batch for chosen in blocks for batch in chunked(chosen, batch_size) if len(batch) == batch_size]
    return rng.sample(batches, len(batches))


def answer_tokens(examples: Sequence[Example]) -> int:
    """How many tokens are learnt from `examples`."""
    return sum(len(example.ids) - example.prompt for example in examples)


def padded(examples: Sequence[Example], device: str) -> Batch:
    """The examples as one batch, padded on the right."""
    # On a CPU every new shape costs seconds of kernel building, far more than some padding.
    longest = -(-max(len(example.ids) for example in examples) // _LENGTH_STEP) * _LENGTH_STEP
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    mask = torch.zeros_like(ids)
    for row, (tokens, prompt) in enumerate(examples):
        ids[row, : len(tokens)] = torch.from_numpy(tokens)
        labels[row, prompt : len(tokens)] = ids[row, prompt : len(tokens)]
        mask[row, : len(tokens)] = 1
    return Batch(ids.to(device), labels.to(device), mask.to(device))
