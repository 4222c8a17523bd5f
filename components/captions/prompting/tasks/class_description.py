"""PC-CLIP's longer descriptions of classes, in the place of a name alone."""

from __future__ import annotations

from components.captions.prompting.inputs.benchmark_readers import read_classes
from components.captions.prompting.parsing import cut
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, completion

_DEMONSTRATION = """\
Q: What is a longer description of the visual features of the class "dog"?

A: Dogs possess four legs with distinctive paws, sharp teeth, keen senses, expressive eyes, and a snout, all \
contributing to their unique and diverse physical appearances.
"""


def _messages(inputs: Inputs) -> Chat:
    question = f'Q: What is a longer description of the class "{inputs["class_name"]}"?'
    return completion(f"{_DEMONSTRATION}\n{question}\n\nA:")


TASK = PromptTask(
    name="class_description",
    citation="PC-CLIP (TMLR 2025), appendix A.3",
    inputs=("class_name",),
    reads=read_classes,
    messages=_messages,
    parse=cut,
    outputs=("description",),
)
