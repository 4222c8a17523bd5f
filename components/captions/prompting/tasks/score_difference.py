"""PC-CLIP's judge of comparisons: a score from 0 to 1, from the captions and, where a model sees, the pictures."""

from __future__ import annotations

from components.captions.prompting.inputs.readers import SHOWN, read_answers
from components.captions.prompting.parsing import scored_json
from components.captions.prompting.request import PICTURE, Inputs
from components.captions.prompting.task import PromptTask, chat, question_alone

_KEYS = ("image1_description", "image2_description", "score", "reasoning")
_PICTURES = f"""\
Image 1: {PICTURE}
Image 2: {PICTURE}
"""
_WANTED = """\
Please provide:
1. A brief description of what {seen} Image 1 ({length})
2. A brief description of what {seen} Image 2 ({length})
3. Evaluate the quality of the comparative description on a scale of 0 to 1, where:
- 0 means the description fails to accurately capture meaningful differences
- 0.25 means the description captures some differences but misses some details or hallucinates new objects
- 0.5 means the description captures some differences but is partly inaccurate
- 0.75 means the description captures most differences with minor inaccuracies
- 1 means the description perfectly captures the key differences
4. Briefly explain your reasoning for the score ({length})
Format your response as JSON with these keys:
{{
  "image1_description": "...",
  "image2_description": "...",
  "score": ...,
  "reasoning": "..."
}}"""


def _question(inputs: Inputs) -> str:
    shown = SHOWN in inputs
    question = (
        f"I'm showing you {'two images with their captions' if shown else 'the captions of two images'} and a "
        "comparative description.\n"
        f"Image 1 caption: {inputs['caption']}\n"
        f"Image 2 caption: {inputs['other_caption']}\n"
        f"{_PICTURES if shown else ''}"
        f"Comparative description: {inputs['difference']}\n"
    )
    seen, length = ("you see in", "2\u20133 sentences") if shown else ("the caption says of", "a few words")
    return question + _WANTED.format(seen=seen, length=length)


TASK = PromptTask(
    name="score_difference",
    citation="PC-CLIP (TMLR 2025), appendix B.3; the wording without pictures is ours",
    inputs=("caption", "difference", "other_caption"),
    reads=read_answers("difference", caption="source", other_caption="other_source"),
    messages=lambda inputs: chat("You judge comparisons of images.", _question(inputs)),
    parse=lambda answer: scored_json(answer, _KEYS),
    published=lambda inputs: question_alone(_question(inputs)),
    outputs=_KEYS,
    pictures=True,
)
