"""PC-CLIP's comparisons: how one picture differs from another, told from their captions."""

from __future__ import annotations

import re

from components.captions.sources import Inputs, read_caption_pairs, short_captions
from components.captions.task import Chat, PromptTask

_END = re.compile(r"Q:|Note:|#\d+:|I hope|Human:|User:", re.IGNORECASE)
_LABEL = re.compile(r"^(?:A|Answer|#\d+):\s*", re.IGNORECASE)


def _question(one: str, other: str) -> str:
    return f'What is the visual difference between an image captioned with "{one}" and one captioned with "{other}"?'


_CAT, _DOG = "a photo of a black, small cat", "a photo of a large, white dog"
_DEMONSTRATIONS = (
    (_question(_CAT, _DOG), "The cat is smaller and is the color black, while the dog is larger and is white."),
    (_question(_DOG, _CAT), "The dog is larger and is the color white, while the cat is smaller and black."),
)


def _messages(inputs: Inputs) -> Chat:
    messages: Chat = [{"role": "system", "content": "You compare images by their captions."}]
    for question, answer in _DEMONSTRATIONS:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": _question(inputs["caption"], inputs["other_caption"])}]


def cut(answer: str) -> str | None:
    """The answer on one line, without its label, up to where the model goes on to something else."""
    body = _LABEL.sub("", answer.strip())
    marker = _END.search(body)
    text = re.sub(r"\s+", " ", body[: marker.start()] if marker else body).strip(" \"'`*")
    return text or None


TASK = PromptTask(
    name="difference",
    citation="PC-CLIP (TMLR 2025), appendix B.1, two of its demonstrations; the cutting is appendix B.2's",
    inputs=("caption", "other_caption"),
    reads=read_caption_pairs,
    accepts=short_captions,
    messages=_messages,
    parse=cut,
)
