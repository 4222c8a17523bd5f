"""Arithmetic of text features seen in generated images, scored by a judge (PC-CLIP, section 4.5, table 5).

For each class of CIFAR-100 and each of 8 colours an image is generated from the sum of the features of "This is a
photo of {class}" and of the colour; a judge says from 1 to 5 how well it shows the class in that colour. Off unless
asked for:

- option `diffusion`: folder or Hugging Face name of Stable Diffusion XL, whose second text tower is exchanged for the
  encoder's, so the encoder must be a ViT-bigG-14; needs the extra `diffusion`.
- option `judge`: see components/benchmarks/judging/judge.py; the judge must see images. The paper's is GPT-4o-mini.

Images are kept in `state/generated_images`, answers in the generation store: nothing is made or asked twice.
"""

from __future__ import annotations

from components.benchmarks.benchmark import Metric, Scores
from components.benchmarks.encoding.context import BenchmarkContext
from components.benchmarks.judging.image_judge import question_about, read_score
from components.benchmarks.judging.judge import OPTION, judge_of, judged
from components.benchmarks.protocols.row_pairs import group_numbers
from components.benchmarks.published_benchmark import Need, Published
from components.core.errors import InputError
from components.core.progress import bar

NAME = "text_to_image"
CLASSES = 100
COLOURS = ("black", "white", "blue", "brown", "gray", "orange", "red", "yellow")
"""The colours among the attributes of AwA2."""


def score(context: BenchmarkContext) -> Scores:
    """The judge's mean score of all images."""
    from components.benchmarks.judging.diffusion import painted, painter_of

    painter = painter_of(context.options.get("diffusion"))
    # Before hours of generation, not after them.
    judge_of(context)
    names = (context.folder / "fine_label_names.txt").read_text("utf-8").split()
    context.expect("fine_label_names.txt", len(names), CLASSES)
    if not names:
        raise InputError(f"{context.folder / 'fine_label_names.txt'} is empty: fetch it again")
    wanted = [(name.replace("_", " "), colour) for name in names for colour in COLOURS]
    questions = []
    with bar("generate images", len(wanted), "image") as progress:
        for name, colour in wanted:
            image = painted(painter, context.under_test, (f"This is a photo of {name}", colour), context.seed)
            questions.append(question_about(f"This is a photo of a {colour} {name}", image))
            progress.update(1)
    values, rows = judged(context, NAME, questions, read_score)
    found = {f"{NAME}/score": values}
    shown = group_numbers([wanted[row][1] for row in rows])
    for number, colour in enumerate(sorted({wanted[row][1] for row in rows})):
        found[f"{NAME}/{colour}/score"] = values[shown == number]
    return Scores(found)


BENCHMARKS = (
    Published(
        name=NAME,
        version=1,
        protocol="PC-CLIP, table 5: a judge's mean score of 800 images; its prompt says the paper's in other words",
        citation="PC-CLIP (arXiv 2409.09721), section 4.5, appendices B.4 and D.1",
        folder="cifar100/cifar-100-binary",
        needs=(
            Need(
                "fine_label_names.txt",
                "100 names",
                "1 kB",
                "not stated",
                "cs.toronto.edu/~kriz/cifar.html, cifar-100-binary.tar.gz",
            ),
        ),
        metrics=(Metric("score", higher_is_better=True, ties="none: a mean of scores"),),
        score=score,
        text_only=True,
        options={**OPTION, "diffusion": "folder or name of Stable Diffusion XL"},
    ),
)
