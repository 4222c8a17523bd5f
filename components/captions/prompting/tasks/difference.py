"""PC-CLIP's comparisons: how one picture differs from another, by their captions."""

from __future__ import annotations

from components.captions.prompting.task import comparison


def _question(one: str, other: str) -> str:
    return (
        f'What is the visual difference between an image captioned with "{one}" and an image captioned with "{other}"?'
    )


_CAT, _DOG = "a photo of a black, small cat", "a photo of a large, white dog"
_HOUSE, _AIRPORT = "a photo of a house", "a photo of an airport"
_DEMONSTRATIONS = (
    (_question(_CAT, _DOG), "The cat is smaller and is the color black, while the dog is larger and is white."),
    (_question(_DOG, _CAT), "The dog is larger and is the color white, while the cat is smaller and black."),
    (
        _question(_HOUSE, _AIRPORT),
        "The house contains furniture and homely decorations, while the airport is much larger and a public space.",
    ),
    (
        _question(_AIRPORT, _HOUSE),
        "The airport contains travelers and airplanes and is a public space, while the house is smaller and is a "
        "private space.",
    ),
)

TASK = comparison(
    "difference",
    citation="PC-CLIP (TMLR 2025), appendix B.1, the prompt for COCO; the cutting is appendix B.2's",
    question=_question,
    demonstrations=_DEMONSTRATIONS,
)
