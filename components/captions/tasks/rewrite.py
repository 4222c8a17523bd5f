"""LaCLIP's rewrites: the caption said in another way, several times over.

The released code draws three example pairs at random for each caption. Here they are always the same three of its
sixteen pairs by ChatGPT, so that a server can cache them.
"""

from __future__ import annotations

from components.captions.inputs.readers import read_captions
from components.captions.inputs.sources import anything
from components.captions.prompts.parsing import first_line
from components.captions.request import Chat, Inputs
from components.captions.task import PromptTask, chat, completion

_EXAMPLES = """\
            man driving a car through the mountains => A man confidently navigating a winding mountain road with \
breathtaking views.

            turtles and large fish in the pond => A tranquil pond where large fish and turtles coexist peacefully, \
creating a harmonious natural habitat.

            a city reflected on a red sunglasses . => The cityscape reflected on a pair of red sunglasses, creating a \
distorted but fascinating view of the urban environment."""
"""Of rewrite/utils.py, laid out as in rewrite/llama_rewrite.py."""


def _messages(inputs: Inputs) -> Chat:
    return chat("You rewrite captions.", f'Rewrite the image caption "{inputs["caption"]}" in your own words.')


def _published(inputs: Inputs) -> Chat:
    return completion(f"write image captions differently,\n\n{_EXAMPLES}\n\n            {inputs['caption']} =>")


TASK = PromptTask(
    name="rewrite",
    citation=(
        "LaCLIP (NeurIPS 2023), section 3; also the baseline 'Rewrite FT' of PC-CLIP (TMLR 2025), which prints no "
        "prompt; wording ours, `published` is LaCLIP's released code's"
    ),
    inputs=("caption",),
    reads=read_captions,
    accepts=anything,
    messages=_messages,
    parse=first_line,
    published=_published,
    outputs=("rewrite",),
)
