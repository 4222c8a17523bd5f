"""PC-CLIP's comparisons of pictures of one kind of thing: which parts differ, and how."""

from __future__ import annotations

from components.captions.inputs.readers import read_caption_pairs
from components.captions.inputs.sources import anything
from components.captions.prompts.few_shot import few_shot, few_shot_text
from components.captions.prompts.parsing import cut
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask, completion


def _question(one: str, other: str) -> str:
    return (
        f'What is the visual difference between an image with a description of "{one}" and an image with a description '
        f'of "{other}"?'
    )


_DEMONSTRATIONS = (
    (
        _question("a grey bird with small wings and a yellow beak", "a blue bird with large wings and a brown beak"),
        "Difference in color and size of the wings. One is grey and has small wings and a yellow beak, while the other "
        "is blue and has large wings and a brown beak.",
    ),
    (
        _question("a brown bird with an orange beak", "a black bird with yellow beak"),
        "The color of the body and the beaks. One has a brown body and orange beak, while the other is black with a "
        "yellow beak.",
    ),
)


def _messages(inputs: Inputs) -> Chat:
    question = _question(inputs["caption"], inputs["other_caption"])
    return few_shot("You compare images by their captions.", _DEMONSTRATIONS, question)


def _published(inputs: Inputs) -> Chat:
    return completion(few_shot_text(_DEMONSTRATIONS, _question(inputs["caption"], inputs["other_caption"])))


TASK = PromptTask(
    name="difference_cub",
    citation="PC-CLIP (TMLR 2025), appendix B.1, the prompt for CUB-200-2011; the cutting is appendix B.2's",
    inputs=("caption", "other_caption"),
    reads=read_caption_pairs,
    accepts=anything,
    messages=_messages,
    parse=cut,
    published=_published,
    outputs=("difference",),
    answers_repeat=("the visual difference between an image", "and an image"),
)
