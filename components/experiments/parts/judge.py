"""Judges: a language model behind one of the project's engines, or an encoder that scores images (CLIPScore).

The option `judge` names the language model: a key of `synthesize.llms` in params.yaml, such as one with
`engine: server` for any OpenAI-compatible endpoint. Answers are cached in `synthesize.store` with those of all tasks.
The question about a generated image is the prompt of PC-CLIP, appendix B.4. CLIPScore (Hessel et al. 2021) uses the
encoder that the option `scorer` names, not the one under test.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from PIL import Image

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.captions.generating.asking import ask
from components.captions.generating.engines import Engine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import PICTURE, Chat, PromptPicture, Request, Sampling
from components.captions.prompting.task import question_alone
from components.core.compute.metrics import Features, Indices, Reals
from components.core.system.errors import InputError, prefixed_errors

OPTION = {"judge": "the judge: a key of synthesize.llms in params.yaml"}
"""For `Benchmark.options`."""
_SAMPLING = Sampling(temperature=0.0, top_p=1.0, max_tokens=512)


@dataclass(frozen=True)
class JudgeQuestion:
    """One question to a judge; see `Request` for how messages mark pictures."""

    messages: Chat
    pictures: tuple[PromptPicture, ...] = ()


@dataclass(frozen=True)
class Judge:
    """A language model behind an engine; `store` is the SQLAlchemy URL of the store of its answers."""

    engine: Engine
    store: str

    def answers(self, task: str, questions: Sequence[JudgeQuestion]) -> list[str | None]:
        """The answer to each question; None if the engine returned none."""
        requests = [self._request(task, question) for question in questions]
        with closing(GenerationStore(self.store)) as store:
            ask(store, self.engine, requests, f"{task}: judge", len(requests))
            answers = store.answers(request.key for request in requests)
        return [answers.get(request.key) for request in requests]

    def _request(self, task: str, question: JudgeQuestion) -> Request:
        chat = tuple((message["role"], message["content"]) for message in question.messages)
        return Request(task, chat, self.engine.model, _SAMPLING, 0, question.pictures)


def judge_of(context: PublishedContext) -> Judge:
    """The judge of the option `judge`."""
    chosen = context.options.get("judge")
    if isinstance(chosen, Judge):
        return chosen
    if not chosen:
        raise InputError(
            "this benchmark needs a judge: give --benchmark-option judge=<a key of synthesize.llms in params.yaml>"
        )
    from components.captions.generating.engines import make_engine
    from components.core.settings import load_settings

    settings = load_settings().synthesize
    return Judge(make_engine(settings, str(chosen)), settings.store)


def judged(
    context: PublishedContext, task: str, questions: Sequence[JudgeQuestion], score: Callable[[str], float | None]
) -> tuple[Reals, Indices]:
    """Scores and numbers of the questions with a usable answer, `[answered]` both; `score` parses an answer.

    Raises:
        InputError: no answer is usable, or some are not and partial data is not allowed.
    """
    judge = judge_of(context)
    answers = judge.answers(task, questions)
    scores = [None if answer is None else score(answer) for answer in answers]
    usable = [row for row, value in enumerate(scores) if value is not None]
    if not usable:
        raise InputError(
            f"judge {judge.engine.model} returned no usable score: choose a larger model with --benchmark-option judge="
        )
    if len(usable) < len(scores):
        count = f"{len(scores) - len(usable):,} of {len(scores):,}"
        context.deviates(f"judge {judge.engine.model}: {count} scores are unusable")
    return np.array([scores[row] for row in usable], dtype=np.float64), np.array(usable, dtype=np.int64)


LOWEST, HIGHEST = 1, 5
_IMAGE_QUESTION = f"""\
You are an expert image judge. Please judge how well the corresponding generated image follows the specified prompt, \
which is an attribute and a particular object.
First, think step-by-step about how well the image matches the prompt.

Then respond **only** with a JSON object containing:

- A string field "explanation" with a brief description of your reasoning (less than 20 words)
- A numeric field "score" between 1 and 5

Interpretation of scores:

- 1: Image is unrelated to the prompt
- 3: Image contains the object but ignores the attribute/descriptor (partial match)
- 5: Image incorporates both the attribute and object correctly

Example:

{{{{
    "explanation": "I see a red apple on a tree but no spots, so partial match.",
    "score": 3
}}}}

Prompt: Generate an image of the following: {{prompt}}
Image: {PICTURE}
"""
_DECODER = json.JSONDecoder()


def question_about(prompt: str, image: Image.Image) -> JudgeQuestion:
    """The question whether `image` follows `prompt`."""
    content = io.BytesIO()
    # A quarter of the bytes of a PNG, of which 800 would be more than a gigabyte.
    image.convert("RGB").save(content, "JPEG", quality=95)
    picture = PromptPicture(content.getvalue(), "image/jpeg")
    return JudgeQuestion(question_alone(_IMAGE_QUESTION.format(prompt=prompt)), (picture,))


def read_score(answer: str) -> float | None:
    """The score from 1 to 5 of the last JSON object in `answer` that has one; None if none has."""
    last = None
    for start in re.finditer(r"\{", answer):
        try:
            content, _ = _DECODER.raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            continue
        score = content.get("score")
        if isinstance(score, int | float) and not isinstance(score, bool) and LOWEST <= score <= HIGHEST:
            last = float(score)
    return last


SCORER = "ViT-bigG-14:laion2b_s39b_b160k"
"""A ViT-G/14 trained on the English part of LAION-2B, as in PC-CLIP's appendix D.1."""
SCORER_OPTION = {"scorer": f"open_clip's scoring encoder, <name>:<tag> or <name>:<weights file>; {SCORER} by default"}
"""For `Benchmark.options`."""
_WEIGHT = 2.5
"""Hessel et al.'s w, section 3: it stretches typical cosines to about 0 to 1."""


def clip_scores(cosines: Features) -> Reals:
    """`2.5 * max(cos, 0)` of the cosine of each image with its text, `[images]`."""
    scores: Reals = _WEIGHT * np.maximum(cosines.astype(np.float64), 0)
    return scores


def scorer_of(context: PublishedContext) -> EncoderUnderTest:
    """The encoder that the option `scorer` names."""
    chosen = context.options.get("scorer", SCORER)
    if isinstance(chosen, EncoderUnderTest):
        return chosen
    name = str(chosen)
    if ":" not in name:
        raise InputError(
            f"--benchmark-option scorer={name} names no weights: give <name>:<tag> of open_clip, such as {SCORER}"
        )
    from components.base.published import encoder_by_name

    with prefixed_errors(f"--benchmark-option scorer={name}"):
        encoder = encoder_by_name(name)
    tower = encoder.image_tower_hash()
    return EncoderUnderTest(name, encoder, tower, tower, encoder.sidecar.preparation)
