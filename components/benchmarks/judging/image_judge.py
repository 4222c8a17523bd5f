"""What a judge is asked about a generated image, and how its score is read (after PC-CLIP, appendix B.4)."""

from __future__ import annotations

import io
import json
import re

from PIL import Image

from components.benchmarks.judging.judge import Question
from components.captions.request import PICTURE, Picture
from components.captions.task import chat

LOWEST, HIGHEST = 1, 5
_ROLE = "You judge how well generated images show what was asked for."
_QUESTION = f"""\
The image was to show an object with an attribute. Consider step by step how well it does.
Then answer with one JSON object: "explanation", fewer than 20 words, and "score", a number from 1 to 5.
1 means that the image has nothing to do with the request, 3 that the object is there without the attribute, 5 that both
the object and the attribute are right.
For example, for a spotted apple: {{{{"explanation": "a plain green apple, no spots", "score": 3}}}}

Request: {{prompt}}
Image: {PICTURE}
"""
_DECODER = json.JSONDecoder()


def question_about(prompt: str, image: Image.Image) -> Question:
    """The question whether `image` shows what `prompt` says."""
    content = io.BytesIO()
    # A quarter of the bytes of a PNG, of which 800 would be more than a gigabyte.
    image.convert("RGB").save(content, "JPEG", quality=95)
    return Question(chat(_ROLE, _QUESTION.format(prompt=prompt)), (Picture(content.getvalue(), "image/jpeg"),))


def read_score(answer: str) -> float | None:
    """The score of the last JSON object in `answer` that has one from 1 to 5; None where there is none."""
    found = None
    for start in re.finditer(r"\{", answer):
        try:
            told, _ = _DECODER.raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            continue
        score = told.get("score")
        if isinstance(score, int | float) and not isinstance(score, bool) and LOWEST <= score <= HIGHEST:
            found = float(score)
    return found
