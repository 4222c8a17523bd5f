"""LaCLIP's rewrites: the caption said in another way, several times over.

The released code draws three of its sixteen example pairs by ChatGPT at random for each caption. Prompt `published` has
its instruction and layout with three fixed pairs of ours.
"""

from __future__ import annotations

from components.captions.prompting.inputs.readers import read_captions
from components.captions.prompting.task import PromptTask, chat, completion

_EXAMPLES = """\
            woman cutting bread in a kitchen => In her kitchen, a woman slices a loaf of bread on a wooden board.

            two dogs on the beach at sunset => Two dogs run along the sand while the sun goes down over the sea.

            an old red truck , parked => A vintage truck with red paint stands parked by the road."""
"""Laid out as in rewrite/llama_rewrite.py of github.com/LijieFan/LaCLIP; the pairs are ours."""


TASK = PromptTask(
    name="rewrite",
    citation=(
        "LaCLIP (NeurIPS 2023), section 3; also the baseline 'Rewrite FT' of PC-CLIP (TMLR 2025), which prints no "
        "prompt; wording ours, `published` has LaCLIP's instruction"
    ),
    inputs=("caption",),
    reads=read_captions,
    messages=lambda inputs: chat(
        "You rewrite captions.", f'Rewrite the image caption "{inputs["caption"]}" in your own words.'
    ),
    published=lambda inputs: completion(
        f"write image captions differently,\n\n{_EXAMPLES}\n\n            {inputs['caption']} =>"
    ),
    outputs=("rewrite",),
    keeps_meaning=True,
)
