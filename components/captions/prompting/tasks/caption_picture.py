"""Texts about a picture for an image search: a caption, two queries, and a thing that is near but absent."""

from __future__ import annotations

import json

from components.captions.prompting.disarm import visible
from components.captions.prompting.inputs.pictures import read_pictures
from components.captions.prompting.inputs.readers import SHOWN
from components.captions.prompting.parsing import scored_json
from components.captions.prompting.request import PICTURE, Chat, Inputs
from components.captions.prompting.task import PromptTask, chat

TEXTS = ("caption", "query_1", "query_2")
ABSENT = "absent"
KEYS = (*TEXTS, ABSENT)
_QUESTION = (
    f"{PICTURE}Describe this picture for an image search. Answer with one JSON object with the keys "
    '"caption" (one sentence on what it shows), "query_1" and "query_2" (what two people would type to find '
    'it, in other words) and "absent" (one thing that could well be in such a picture and is not in this '
    "one, one to three words)."
)


def _parse(answer: str) -> str | None:
    """The JSON object, whose texts have only visible characters."""
    found = scored_json(answer, KEYS)
    texts = {key: " ".join(visible(text).split()) for key, text in json.loads(found or "{}").items()}
    return json.dumps(texts) if texts and all(texts.values()) else None


def _messages(_inputs: Inputs) -> Chat:
    return chat("You answer with JSON only.", _QUESTION)


TASK = PromptTask(
    name="caption_picture",
    citation="wording ours",
    inputs=(SHOWN,),
    reads=read_pictures,
    messages=_messages,
    parse=_parse,
    outputs=KEYS,
    pictures=True,
)
