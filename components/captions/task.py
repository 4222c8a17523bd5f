"""What a prompt task declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from components.captions.inputs.sources import Accepts, Reader
from components.captions.prompts.parsing import first_verdict, without_thought
from components.captions.request import COMPLETION, Chat, Inputs, Parse
from components.core.errors import InputError


@dataclass(frozen=True)
class PromptTask:
    """One question put to a language model about one row of inputs.

    Attributes:
        name: the task's name, its file and its key in params.yaml.
        citation: where the prompt comes from.
        inputs: names of the texts it asks about; the first is the one that the answer rewrites.
        reads: finds the rows of inputs in the task's table.
        accepts: why inputs are not asked about, or None when they are.
        messages: renders the chat, or a plain completion (`completion`); whatever is the same for all rows stands
            first, for prefix caching. Inputs are disarmed before they come here, see
            `components.captions.prompts.disarm`.
        parse: the answer as text, or None when it is unusable; never raises. It is never given a model's thoughts.
        outputs: what the answer holds: the name of the text, or the keys of a JSON object (`parse` gives it as JSON).
        judges: the task whose answers this one judges with "yes" or "no"; after a "no" the judging model answers that
            task's question once, unjudged.
        pictures: whether it can show the pictures of the captions; `PICTURE` marks them in the messages.
        answers_repeat: words of the question that a good answer may need, so that they are not an echo of it.
        published: renders the same question to the letter of the paper or its code, where `messages` differs from it.
    """

    name: str
    citation: str
    inputs: tuple[str, ...]
    reads: Reader
    accepts: Accepts
    messages: Callable[[Inputs], Chat]
    parse: Parse
    outputs: tuple[str, ...] = ()
    judges: str | None = None
    pictures: bool = False
    answers_repeat: tuple[str, ...] = ()
    published: Callable[[Inputs], Chat] | None = None

    def __post_init__(self) -> None:
        """Keep a model's thoughts from `parse`, whoever calls it."""
        object.__setattr__(self, "parse", partial(_parse_without_thought, self.parse))

    @property
    def parse_cut(self) -> Parse:
        """`parse` for an answer that was cut: a verdict counts only where the answer begins with it."""
        return self.parse if self.judges is None else partial(_parse_without_thought, first_verdict)

    def render(self, inputs: Inputs, prompt: str) -> Chat:
        """The question as `synthesize.tasks.<name>.prompt` wants it, `own` or `published`.

        Raises:
            InputError: the task has no other wording than its own.
        """
        if prompt == "own":
            return self.messages(inputs)
        if self.published is None:
            raise InputError(
                f"params.yaml: synthesize.tasks.{self.name}.prompt: the task has one wording: take the key out"
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
    """A text that the model goes on writing."""
    return [{"role": COMPLETION, "content": text}]
