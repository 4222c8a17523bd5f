"""PC-CLIP's comparisons of pictures and of classes, their judge, and its descriptions of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from components.captions.prompting.parsing import cut, scored_json
from components.captions.prompting.pictures import SHOWN
from components.captions.prompting.readers import (
    read_answers,
    read_caption_pairs,
    read_class_pairs,
    read_classes,
)
from components.captions.prompting.request import PICTURE, Inputs
from components.captions.prompting.task import PromptTask, chat, completion, few_shot, question_alone


def _comparison(
    name: str, citation: str, question: Callable[[str, str], str], demonstrations: Sequence[tuple[str, str]]
) -> PromptTask:
    """A task about the difference of two pictures; `question` takes both captions."""

    # One text of questions and answers, which ends where the last answer begins.
    shown = "".join(f"Q: {asked}\n\nA: {answer}\n\n" for asked, answer in demonstrations)

    def ask(inputs: Inputs) -> str:
        return question(inputs["caption"], inputs["other_caption"])

    return PromptTask(
        name=name,
        citation=citation,
        inputs=("caption", "other_caption"),
        reads=read_caption_pairs,
        messages=lambda inputs: few_shot("You compare images by their captions.", demonstrations, ask(inputs)),
        parse=cut,
        published=lambda inputs: completion(f"{shown}Q: {ask(inputs)}\n\nA:"),
        outputs=("difference",),
        answers_repeat=("the visual difference between an image", "and an image"),
    )


def _of_captions(one: str, other: str) -> str:
    return (
        f'What is the visual difference between an image captioned with "{one}" and an image captioned with "{other}"?'
    )


_CAT, _DOG = "a photo of a black, small cat", "a photo of a large, white dog"
_HOUSE, _AIRPORT = "a photo of a house", "a photo of an airport"
_COCO = (
    (_of_captions(_CAT, _DOG), "The cat is smaller and is the color black, while the dog is larger and is white."),
    (_of_captions(_DOG, _CAT), "The dog is larger and is the color white, while the cat is smaller and black."),
    (
        _of_captions(_HOUSE, _AIRPORT),
        "The house contains furniture and homely decorations, while the airport is much larger and a public space.",
    ),
    (
        _of_captions(_AIRPORT, _HOUSE),
        "The airport contains travelers and airplanes and is a public space, while the house is smaller and is a "
        "private space.",
    ),
)


def _of_parts(one: str, other: str) -> str:
    """Of pictures of one kind of thing: which parts differ, and how."""
    return (
        f'What is the visual difference between an image with a description of "{one}" and an image with a description '
        f'of "{other}"?'
    )


_CUB = (
    (
        _of_parts("a grey bird with small wings and a yellow beak", "a blue bird with large wings and a brown beak"),
        "Difference in color and size of the wings. One is grey and has small wings and a yellow beak, while the other "
        "is blue and has large wings and a brown beak.",
    ),
    (
        _of_parts("a brown bird with an orange beak", "a black bird with yellow beak"),
        "The color of the body and the beaks. One has a brown body and orange beak, while the other is black with a "
        "yellow beak.",
    ),
)

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


def _score(inputs: Inputs) -> str:
    """Asks for a score from 0 to 1 by the captions and, where a model sees, the pictures."""
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


_DESCRIBED = """\
Q: What is a longer description of the visual features of the class "dog"?

A: Dogs possess four legs with distinctive paws, sharp teeth, keen senses, expressive eyes, and a snout, all \
contributing to their unique and diverse physical appearances.
"""


def _of_classes(inputs: Inputs) -> str:
    return (
        "In less than 30 words, what is the description of the visual difference (e.g., in terms of color or shape) "
        f"between an image of {inputs['class_name']} and an image of {inputs['other_class_name']}?"
    )


TASKS = (
    _comparison(
        name="difference",
        citation="PC-CLIP (TMLR 2025), appendix B.1, the prompt for COCO; the cutting is appendix B.2's",
        question=_of_captions,
        demonstrations=_COCO,
    ),
    _comparison(
        name="difference_cub",
        citation="PC-CLIP (TMLR 2025), appendix B.1, the prompt for CUB-200-2011; the cutting is appendix B.2's",
        question=_of_parts,
        demonstrations=_CUB,
    ),
    PromptTask(
        name="score_difference",
        citation="PC-CLIP (TMLR 2025), appendix B.3; the wording without pictures is ours",
        inputs=("caption", "difference", "other_caption"),
        reads=read_answers("difference", caption="source", other_caption="other_source"),
        messages=lambda inputs: chat("You judge comparisons of images.", _score(inputs)),
        parse=lambda answer: scored_json(answer, _KEYS),
        published=lambda inputs: question_alone(_score(inputs)),
        outputs=_KEYS,
        pictures=True,
    ),
    PromptTask(
        name="class_description",
        citation="PC-CLIP (TMLR 2025), appendix A.3",
        inputs=("class_name",),
        reads=read_classes,
        messages=lambda inputs: completion(
            f'{_DESCRIBED}\nQ: What is a longer description of the class "{inputs["class_name"]}"?\n\nA:'
        ),
        parse=cut,
        outputs=("description",),
    ),
    PromptTask(
        name="class_difference",
        citation="PC-CLIP (TMLR 2025), appendix A.2",
        inputs=("class_name", "other_class_name"),
        reads=read_class_pairs,
        messages=lambda inputs: chat("You describe what things look like.", _of_classes(inputs)),
        parse=cut,
        published=lambda inputs: question_alone(_of_classes(inputs)),
        outputs=("difference",),
        answers_repeat=(
            "of the visual difference",
            "in terms of color or shape",
            "between an image of",
            "and an image of",
        ),
    ),
)
