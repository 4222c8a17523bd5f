"""PC-CLIP's comparisons of pictures of one kind of thing: which parts differ, and how."""

from __future__ import annotations

from components.captions.prompting.task import comparison


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

TASK = comparison(
    "difference_cub",
    citation="PC-CLIP (TMLR 2025), appendix B.1, the prompt for CUB-200-2011; the cutting is appendix B.2's",
    question=_question,
    demonstrations=_DEMONSTRATIONS,
)
