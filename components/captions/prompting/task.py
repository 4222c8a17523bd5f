"""The declaration of a prompt task, and builders of chats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from components.captions.prompting.parsing import first_line, first_verdict, without_thought
from components.captions.prompting.readers import Accepts, Reader, anything
from components.captions.prompting.request import COMPLETION, Chat, Inputs, Parse
from components.core.system.errors import InputError


@dataclass(frozen=True)
class PromptTask:
    """One question to a language model about one row of inputs.

    Attributes:
        inputs: names of the texts in the question; the answer rewrites the first.
        messages: renders the chat, or a plain completion (`completion`); the constant part comes
            first, for prefix caching. Inputs are disarmed before, see `components.captions.prompting.request`.
        parse: returns the answer as text, or None when it is unusable; never raises. Thoughts are removed before.
        outputs: the name of the answer's text, or the keys of a JSON object (`parse` returns it as JSON).
        judges: the task whose answers this one judges with "yes" or "no"; after a "no" the judging model answers that
            task's question once, unjudged.
        keeps_meaning: whether the answer means the same as the first input, so that a judge can compare the two.
        pictures: whether the question can show the pictures of the captions; `PICTURE` marks them in the messages.
        answers_repeat: words of the question that a good answer may need, so that they do not count as an echo.
        published: renders the wording of the paper or its code, where `messages` differs from it.
    """

    name: str
    citation: str
    inputs: tuple[str, ...]
    reads: Reader
    messages: Callable[[Inputs], Chat]
    accepts: Accepts = anything
    parse: Parse = first_line
    outputs: tuple[str, ...] = ()
    judges: str | None = None
    keeps_meaning: bool = False
    pictures: bool = False
    answers_repeat: tuple[str, ...] = ()
    published: Callable[[Inputs], Chat] | None = None

    def __post_init__(self) -> None:
        """Remove a model's thoughts before `parse`."""
        object.__setattr__(self, "parse", partial(_parse_without_thought, self.parse))

    @property
    def writes_text(self) -> bool:
        """Whether the answer is a text for training or evaluation, and not a verdict or a score."""
        return {"verdict", "score"}.isdisjoint(self.outputs)

    @property
    def parse_cut(self) -> Parse:
        """`parse` for an answer that was cut: a verdict counts only where the answer begins with it."""
        return self.parse if self.judges is None else partial(_parse_without_thought, first_verdict)

    def render(self, inputs: Inputs, prompt: str) -> Chat:
        """The question in the wording of `synthesize.tasks.<name>.prompt`, `own` or `published`."""
        if prompt == "own":
            return self.messages(inputs)
        if self.published is None:
            raise InputError(
                f"params.yaml: synthesize.tasks.{self.name}.prompt: the task has one wording: remove the key"
            )
        return self.published(inputs)


def _parse_without_thought(parse: Parse, answer: str) -> str | None:
    return parse(without_thought(answer))


def chat(system: str, question: str) -> Chat:
    """A system message and one question."""
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def question_alone(question: str) -> Chat:
    """One question without a system message."""
    return [{"role": "user", "content": question}]


def completion(text: str) -> Chat:
    """A text that the model continues."""
    return [{"role": COMPLETION, "content": text}]


def few_shot(system: str, demonstrations: Sequence[tuple[str, str]], question: str) -> Chat:
    """A system message, each demonstration's question and answer, which are the same for all rows, and `question`."""
    turns = [
        {"role": role, "content": text}
        for pair in demonstrations
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return [{"role": "system", "content": system}, *turns, {"role": "user", "content": question}]
