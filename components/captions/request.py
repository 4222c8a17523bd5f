"""What engines are asked and what they reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property

from components.files import content_hash

Chat = Sequence[Mapping[str, str]]
"""Messages as prompt tasks write them: mappings with `role` and `content`."""

COMPLETION = "prompt"
"""Role of the one message of a plain completion: its text is continued as it stands, without a chat template."""

PICTURE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands in a message's text where the next of the request's pictures belongs."""


@dataclass(frozen=True)
class Picture:
    """An encoded image that a question shows."""

    data: bytes
    media_type: str

    @cached_property
    def sha256(self) -> str:
        """Hash of the encoded bytes."""
        return content_hash(self.data)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float
    top_p: float
    max_tokens: int

    @cached_property
    def json(self) -> str:
        """The settings as the store keeps them."""
        return _json(self.temperature, self.top_p, self.max_tokens)


@cache
def _json(temperature: float, top_p: float, max_tokens: int) -> str:
    return json.dumps(asdict(Sampling(temperature, top_p, max_tokens)), sort_keys=True)


@dataclass(frozen=True)
class Request:
    """One question to a model; `attempt` tells repeated questions apart.

    Attributes:
        task: the prompt task that asks.
        chat: role and content of each message, see `COMPLETION` and `PICTURE`.
        model: identifies the weights that answer, see `Engine.model`.
        sampling: how tokens are drawn.
        attempt: number of the sample, from 0.
        pictures: the images that the messages show, in the order of their marks.
    """

    task: str
    chat: tuple[tuple[str, str], ...]
    model: str
    sampling: Sampling
    attempt: int
    pictures: tuple[Picture, ...] = ()

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


@dataclass(frozen=True)
class Reply:
    """What became of a request: an answer, or why there is none.

    A failure is one line that ends up in tables and reports; it must hold no secret.
    """

    request: Request
    answer: str | None
    failure: str | None = None
