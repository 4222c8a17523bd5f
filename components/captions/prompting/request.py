"""Requests to engines, their replies, and the cleaning of captions, which are untrusted text, before they are sent."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from typing import Protocol

from components.captions.prompting.parsing import without_thought
from components.core.tables.files import content_hash

Chat = Sequence[Mapping[str, str]]
"""Messages as prompt tasks write them: mappings with `role` and `content`."""

COMPLETION = "prompt"
"""Role of the single message of a plain completion: its text is continued without a chat template."""

PICTURE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Marks the place of the request's next picture in a message's text."""

_LETTERS_A_TOKEN = 200
"""More than any tokenizer's longest token."""
CUT = "the answer was cut"
"""Beginning of the reason of an answer without its end."""
MORE_TOKENS = 4
"""Factor of `max_tokens` when a question is repeated because the end of its answer was missing."""

Inputs = Mapping[str, str]
"""Texts that a question is about, by name; the names are column names of the validated tables."""

Parse = Callable[[str], str | None]
"""Reads the text out of an answer; None when it is unusable; never raises."""


@dataclass(frozen=True)
class PromptPicture:
    """An encoded image that a question shows."""

    data: bytes
    media_type: str

    @cached_property
    def sha256(self) -> str:
        """Hash of the encoded bytes."""
        return content_hash(self.data)


class ShownPicture(Protocol):
    """A picture that a question shows; `data` may be made when the question is sent, and then raise ValueError."""

    @property
    def data(self) -> bytes: ...

    @property
    def media_type(self) -> str: ...

    @property
    def sha256(self) -> str: ...


@dataclass(frozen=True)
class InputRow:
    """Inputs of one question: the pair they belong to, which sample of that pair, and the second pair if any.

    `pictures` are those of the first and of the second pair, where the question shows them.
    """

    id: str
    sample: int
    inputs: Inputs
    other_id: str | None = None
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(frozen=True)
class Sampling:
    """Settings of the sampling."""

    temperature: float
    top_p: float
    max_tokens: int

    @cached_property
    def json(self) -> str:
        """The settings as JSON, as stored."""
        return _json(self.temperature, self.top_p, self.max_tokens)


@cache
def _json(temperature: float, top_p: float, max_tokens: int) -> str:
    return json.dumps(asdict(Sampling(temperature, top_p, max_tokens)), sort_keys=True)


@dataclass(frozen=True)
class Request:
    """One question to a model.

    Attributes:
        chat: role and content of each message, see `COMPLETION` and `PICTURE`.
        model: identifies the weights that answer, see `Engine.model`.
        parse: reads an answer that was cut; None for one whose end is missing.
        sample: number of the answer among those about the source's pair.
    """

    task: str
    chat: tuple[tuple[str, str], ...]
    model: str
    sampling: Sampling
    attempt: int
    pictures: tuple[ShownPicture, ...] = ()
    parse: Parse | None = field(default=None, compare=False, repr=False)
    source: InputRow = field(default=InputRow("", 0, {}), compare=False, repr=False)
    sample: int = field(default=0, compare=False, repr=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat as engines take it."""
        return [{"role": role, "content": content} for role, content in self.chat]

    @property
    def completion(self) -> str | None:
        """The text to continue, or None when the request is a chat."""
        return self.chat[0][1] if self.chat[0][0] == COMPLETION else None

    @cached_property
    def prompt_sha256(self) -> str:
        """Hash of the rendered messages and the pictures."""
        shown = [picture.sha256 for picture in self.pictures]
        return content_hash(*(part for message in self.chat for part in message), *shown)

    @cached_property
    def key(self) -> str:
        """Hash of prompt, model revision, sampling and attempt: the same question has the same key everywhere."""
        return content_hash(self.prompt_sha256, self.model, self.sampling.json, str(self.attempt))

    @property
    def longer(self) -> Request:
        """The same question with room for `MORE_TOKENS` times as many tokens."""
        return replace(self, sampling=replace(self.sampling, max_tokens=MORE_TOKENS * self.sampling.max_tokens))

    def lacks_its_end(self, answer: ModelAnswer) -> bool:
        """Whether an answer was cut before its relevant part was complete, so that more tokens may help.

        A judge's "Yes" and a first line with the beginning of a second are complete wherever they were cut.
        """
        if not answer.cut or not answer.text.strip():
            return answer.cut
        if self.parse is None:
            return False
        read = self.parse(answer.text)
        return read is None or read != self.parse(f"{answer.text} and")


@dataclass(frozen=True)
class ModelAnswer:
    """A model's text, whether it was cut at `max_tokens`, and the tokens of question and answer, if they are known."""

    text: str
    cut: bool = False
    tokens: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Reply:
    """An answer to a request, or the reason why there is none: one line without secrets, shown in reports.

    `sampling` is the sampling that the server took, as JSON, where it refused a part of the request's.
    """

    request: Request
    answer: str | None
    failure: str | None = None
    tokens: tuple[int, int] = (0, 0)
    sampling: str | None = None

    @staticmethod
    def of(request: Request, answer: ModelAnswer, tokens: int) -> Reply:
        """The reply with the text of `answer`, for which `tokens` tokens were allowed.

        It is a failure where the text is empty, its end is missing, or it is longer than so many tokens can be.
        """
        if len(answer.text) > _LETTERS_A_TOKEN * tokens:
            return Reply(request, None, f"the answer is too long for {tokens} tokens: the server ignores max_tokens")
        if request.lacks_its_end(answer):
            return Reply(request, None, f"{CUT} at {tokens} tokens: raise the task's max_tokens")
        if not without_thought(answer.text):
            return Reply(request, None, "the model said nothing")
        return Reply(request, answer.text, tokens=answer.tokens)


TURN_MARKS = re.compile(
    r"[<\uff1c][|\uff5c][^|\uff5c>\uff1e]{0,40}[|\uff5c][>\uff1e]"
    r"|</?(?:s|bos|eos|system|user|assistant|human|model|think|tool_\w{1,20}|(?:start|end)_of_(?:turn|role|text))>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,20})\]"
    r"|<</?SYS>>",
    re.IGNORECASE,
)
"""Marks that open or close a message in some model's chat template: a caption could end its own and begin another."""

_OTHER_MARKS = re.compile(r"</?[a-z][a-z0-9_]{0,40}>|\[/?(?:IMG|IMG_BREAK|IMG_END|gMASK|CLS|SEP|PAD|UNK|MASK)\]")
"""Other marks that tokenizers may read as one special token; `<PERSON>`, a name that a data set hides, is not one."""

_DOUBLE_QUOTES = re.compile(
    '["\u02ba\u02dd\u02ee\u05f4\u00ab\u00bb\u201c-\u201f\u2033\u2034\u2036\u2037\u2057\u275d\u275e\u2760\u301d-\u301f'
    "\uff02\U0001f676-\U0001f678]"
)
_UNSEEN = {"Cc", "Cf", "Co", "Cs"}
"""Categories of invisible characters: control, format (also the invisible letters that spell hidden text),
private use, and halves of surrogate pairs, which are not valid text."""
_JOINERS, _JOINED = "\u200c\u200d", {"Lo", "Mc", "Mn", "Sk", "So"}
"""Between two pictures or two letters of a script that joins them, these join both into one sign; there they stay."""


def disarm(text: str) -> str:
    """`text` on one line, without chat marks, and with single for double quotes, so that it stays inside its quotes."""
    bare = visible(text).replace(PICTURE, " ")
    while bare != (again := _OTHER_MARKS.sub(" ", TURN_MARKS.sub(" ", bare))):
        bare = again
    return re.sub(r"\s+", " ", _DOUBLE_QUOTES.sub("'", bare)).strip()


def visible(text: str) -> str:
    """`text` without invisible characters; white space stays, and the joiners within one emoji."""
    if text.isascii() and text.isprintable():
        return text
    kinds = ["", *map(unicodedata.category, text), ""]
    return "".join(
        letter
        for letter, before, kind, after in zip(text, kinds, kinds[1:], kinds[2:], strict=False)
        if letter.isspace() or kind not in _UNSEEN or (letter in _JOINERS and {before, after} <= _JOINED)
    )
