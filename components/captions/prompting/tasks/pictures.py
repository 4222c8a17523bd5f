"""Texts about a picture for an image search, and whether a model that looks again finds them true."""

from __future__ import annotations

import json

from components.captions.prompting.parsing import clear_verdict, scored_json
from components.captions.prompting.pictures import SHOWN
from components.captions.prompting.readers import read_pictures
from components.captions.prompting.request import PICTURE, Chat, Inputs, visible
from components.captions.prompting.task import PromptTask, chat

TEXTS = ("caption", "query_1", "query_2")
ABSENT = "absent"
KEYS = (*TEXTS, ABSENT)
_JUDGE = "You look closely and judge texts."
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


def _are_true(inputs: Inputs) -> Chat:
    shown = "\n".join(f'- "{inputs[key]}"' for key in TEXTS if key in inputs)
    return chat(_JUDGE, f'{PICTURE}Are all of these texts true of this picture?\n{shown}\nAnswer "Yes" or "No".')


TASKS = (
    PromptTask(
        name="caption_picture",
        citation="wording ours",
        inputs=(SHOWN,),
        reads=read_pictures,
        messages=lambda _: chat("You answer with JSON only.", _QUESTION),
        parse=_parse,
        outputs=KEYS,
        pictures=True,
    ),
    PromptTask(
        name="check_picture",
        citation="wording ours",
        inputs=TEXTS,
        reads=read_pictures,
        messages=_are_true,
        parse=clear_verdict,
        outputs=("verdict",),
        pictures=True,
    ),
    PromptTask(
        name="check_absent",
        citation="wording ours",
        inputs=(ABSENT,),
        reads=read_pictures,
        messages=lambda inputs: chat(
            _JUDGE, f'{PICTURE}Does this picture show "{inputs[ABSENT]}"? Answer "Yes" or "No".'
        ),
        parse=clear_verdict,
        outputs=("verdict",),
        pictures=True,
    ),
)
