"""False captions (CS-CLIP, NegCLIP, CoN-CLIP), and true ones that say that a thing is not there (NegationCLIP)."""

from __future__ import annotations

import re

from components.captions.prompting.parsing import first_line
from components.captions.prompting.readers import read_answers, read_captions
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask, chat, few_shot

_FALSE = "You write captions that are false."
_MOST_WORDS = 3


def _parse_name(answer: str) -> str | None:
    """The name in lower case without its article and a full stop; None for more than three words: not a name."""
    line = first_line(answer)
    name = re.sub(r"^(?:an?|the) ", "", (line or "").rstrip(". ").lower())
    return name if name and len(name.split()) <= _MOST_WORDS else None


_OWN = 'Say in the caption "{caption}" that there is no {absent_object}.'
_DEMONSTRATIONS = (
    ("two plates of pasta on a wooden table", "glass", "two plates of pasta on a wooden table with no glass"),
    ("a man rides a bicycle along a river", "helmet", "a man without a helmet rides a bicycle along a river"),
)
"""Two, as in the paper: the absence of something near, and of something that belongs to a thing in the caption."""

_PUBLISHED = "Add the absence of the {absent_object} to the caption '{caption}'."
_PUBLISHED_DEMONSTRATIONS = (
    ("a woman cutting bread in a kitchen", "apron", "a woman not wearing an apron cutting bread in a kitchen"),
    ("two dogs running along a beach", "ball", "two dogs running along a beach with no ball"),
)
"""Instruction of src/data_generation.py of github.com/parkquasar/NegationCLIP; its two demonstrations are ours."""


def _absence(system: str, question: str, demonstrations: tuple[tuple[str, str, str], ...], inputs: Inputs) -> Chat:
    shown = [(question.format(caption=caption, absent_object=name), answer) for caption, name, answer in demonstrations]
    return few_shot(system, shown, question.format(**inputs))


TASKS = (
    # An object that a picture could well show and its caption does not name. In the paper a vision model (LLaVA-1.6)
    # then decides whether the picture shows it, and drops the caption if so. No model here sees the picture. Validation
    # can check whether the caption names the object and, in the synthetic dataset, whether the scene has it; of other
    # pictures some objects said to be absent will be there.
    PromptTask(
        name="name_absent",
        citation="NegationCLIP (Park et al., ICCV 2025), step 1 of its data; wording ours, its code's is `published`",
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(
            "You answer with one word.",
            f'Which object could well be in the picture with the caption "{inputs["caption"]}" although the caption '
            "does not name it? Answer with the object's name alone.",
        ),
        parse=_parse_name,
        published=lambda inputs: chat(
            "You are a helpful chatbot that answers with only one word.",
            "Name an object that is not mentioned in the caption, but is likely to be in the image corresponding to "
            f"the caption '{inputs['caption']}'.",
        ),
        outputs=("absent_object",),
    ),
    PromptTask(
        name="state_absence",
        citation=(
            "NegationCLIP (Park et al., ICCV 2025), step 3 of its data; wording ours, `published` has its instruction"
        ),
        inputs=("caption", "absent_object"),
        reads=read_answers("absent_object", caption="source"),
        messages=lambda inputs: _absence("You rewrite captions.", _OWN, _DEMONSTRATIONS, inputs),
        published=lambda inputs: _absence(
            "You are a helpful chatbot that generates a concise caption.", _PUBLISHED, _PUBLISHED_DEMONSTRATIONS, inputs
        ),
        outputs=("absence",),
        answers_repeat=("that there is no",),
    ),
    PromptTask(
        name="negate_terms",
        citation=(
            "CoN-CLIP (arXiv 2403.20312), its CC-Neg data, which PaLM wrote; its prompt is not released: wording ours"
        ),
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(
            _FALSE,
            'Put one of the words "no", "not" and "without" into the subject or the predicate of the caption '
            f'"{inputs["caption"]}" so that it denies what the picture shows.',
        ),
        outputs=("negated_term",),
        answers_repeat=("one of the",),
    ),
    # In the paper's code one answer has all parts of a caption with their foils. Here each sample names one part, and
    # `change_unit` its foil, so that validation can check both; samples that name the same part twice are duplicates.
    PromptTask(
        name="name_unit",
        citation="CS-CLIP (arXiv 2602.23906), its entity and relation units; wording ours",
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(
            "You take captions apart.",
            f'Take one part out of the caption "{inputs["caption"]}": one thing with all that is said of it, or two '
            "things and how they stand to each other. Answer with that phrase alone.",
        ),
        outputs=("unit",),
        answers_repeat=("to each other", "out of the"),
    ),
    PromptTask(
        name="change_unit",
        citation="CS-CLIP (arXiv 2602.23906), its minimally edited foils; wording ours",
        inputs=("unit", "caption"),
        reads=read_answers("unit", caption="source"),
        messages=lambda inputs: chat(
            _FALSE,
            f'Change one thing, attribute or relation in "{inputs["unit"]}" so that it is false of the picture with '
            f'the caption "{inputs["caption"]}". Answer with the changed phrase alone.',
        ),
        outputs=("unit_foil",),
    ),
    PromptTask(
        name="swap_negative",
        citation=(
            "NegCLIP (ICLR 2023, 'When and why vision-language models behave like bags-of-words'), section 4, which "
            "swaps words by spaCy's parts of speech and asks no language model; wording ours"
        ),
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(
            _FALSE, f'Exchange two things of the caption "{inputs["caption"]}" so that it describes another picture.'
        ),
        outputs=("hard_negative",),
    ),
)
