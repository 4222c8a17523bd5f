"""PC-CLIP's comparisons of two classes, for comparative prompting."""

from __future__ import annotations

from components.captions.prompting.inputs.benchmark_readers import read_class_pairs
from components.captions.prompting.parsing import cut
from components.captions.prompting.request import Inputs
from components.captions.prompting.task import PromptTask, chat, question_alone


def _question(inputs: Inputs) -> str:
    return (
        "In less than 30 words, what is the description of the visual difference (e.g., in terms of color or shape) "
        f"between an image of {inputs['class_name']} and an image of {inputs['other_class_name']}?"
    )


TASK = PromptTask(
    name="class_difference",
    citation="PC-CLIP (TMLR 2025), appendix A.2",
    inputs=("class_name", "other_class_name"),
    reads=read_class_pairs,
    messages=lambda inputs: chat("You describe what things look like.", _question(inputs)),
    parse=cut,
    published=lambda inputs: question_alone(_question(inputs)),
    outputs=("difference",),
    answers_repeat=("of the visual difference", "in terms of color or shape", "between an image of", "and an image of"),
)
