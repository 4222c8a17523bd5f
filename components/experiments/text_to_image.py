"""Arithmetic of text features in generated images (PC-CLIP, section 4.5, table 5 and appendix D.1).

For each class of CIFAR-100 and each of 8 colours an image is generated from the sum of the features of "This is a
photo of {class}" and of the colour. For `text_to_image` a judge scores from 1 to 5 how well it shows the class in that
colour; `text_to_image_clip_score` is CLIPScore with "This is a photo of a {colour} {class}", for which the paper prints
no figure. Both share their images and require options:

- `diffusion` and `diffusion_tower`: see parts/diffusion.py; they require the extra `diffusion`.
- `judge` and `scorer`: see parts/judge.py. The judge must accept images; the paper's is GPT-4o-mini.
- `texts`: the user's prompts, each with a description that is added to it, as in figures 4, 6 and 7. Scores are about
  "{prompt} {description}", and are not comparable with published figures.

`generated_images/<encoder>/<benchmark>.tsv` below the results lists the images, which are cached in
`state/generated_images`, with their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from components.benchmarks.scoring.benchmark import Benchmark, Scores, metrics
from components.benchmarks.scoring.encoding.context import embed_new
from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.benchmarks.scoring.protocols.choices import row_cosine
from components.core.compute.metrics import Reals
from components.core.pictures.rgb import open_picture
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.experiments.parts import judge
from components.test_sets.files import RequiredFile
from components.test_sets.image_sets.image_set import lines
from components.test_sets.pictures import picture_file

if TYPE_CHECKING:
    from components.experiments.parts.diffusion import StableDiffusion

NAME, CLIP_SCORE = "text_to_image", "text_to_image_clip_score"
CLASSES = 100
COLOURS = ("black", "white", "blue", "brown", "gray", "orange", "red", "yellow")
"""The colours among the attributes of AwA2."""
_OPTIONS = {
    "diffusion": "folder or name of Stable Diffusion XL",
    "diffusion_tower": "the text tower that the encoder replaces: second (ViT-bigG-14, section 4.5; the default) or "
    "first (ViT-L-14, appendix D.2)",
    "texts": "a file with a prompt, a tab and a description on each line, in place of the 800",
}


def score(context: PublishedContext) -> Scores:
    """The judge's mean score of all images."""
    # Checked before hours of generation.
    pipeline = _pipeline(context)
    judge.judge_of(context)
    specs = _specs(context)
    questions = []
    for spec, path in zip(specs, _images(context, pipeline, specs), strict=True):
        with open_picture(path) as image:
            questions.append(judge.question_about(spec.prompt, image))
    values, rows = judge.judged(context, NAME, questions, judge.read_score)
    return Scores(_by_colour(NAME, "score", values, [specs[row] for row in rows]))


def score_clip(context: PublishedContext) -> Scores:
    """The mean CLIPScore of all images with their texts."""
    pipeline = _pipeline(context)
    scorer = judge.scorer_of(context)
    specs = _specs(context)
    pictures = [picture_file(path) for path in _images(context, pipeline, specs)]
    images = context.image_features.of(scorer, pictures)
    texts = embed_new(scorer.encoder, [spec.prompt for spec in specs], {})
    values = judge.clip_scores(row_cosine(images, texts))
    return Scores(_by_colour(CLIP_SCORE, "clip_score", values, specs))


def _pipeline(context: PublishedContext) -> StableDiffusion:
    # This imports open_clip, which `cliptune evaluate --list` does not need.
    from components.experiments.parts.diffusion import pipeline_of

    return pipeline_of(context.options)


@dataclass(frozen=True)
class _ImageSpec:
    """An image: the texts whose features are added, the text that it is scored with, and the colour's name."""

    texts: tuple[str, str]
    prompt: str
    colour: str = ""


def _specs(context: PublishedContext) -> list[_ImageSpec]:
    """The user's texts, or every class with every colour."""
    if chosen := context.options.get("texts"):
        return _own_texts(context, Path(str(chosen)))
    path = context.folder / "fine_label_names.txt"
    names = [name.replace("_", " ") for name in path.read_text("utf-8").split()]
    context.expect(path.name, len(names), CLASSES)
    if not names:
        raise InputError(f"{path} is empty: fetch it again")
    return [
        _ImageSpec((f"This is a photo of {name}", colour), f"This is a photo of a {colour} {name}", colour)
        for name in names
        for colour in COLOURS
    ]


def _own_texts(context: PublishedContext, path: Path) -> list[_ImageSpec]:
    specs = []
    for line in lines(path):
        prompt, _, description = (part.strip() for part in line.partition("\t"))
        if not prompt or not description:
            raise InputError(f"{path}: line '{line[:40]}' does not have a prompt, a tab and a description: fix it")
        specs.append(_ImageSpec((prompt, description), f"{prompt} {description}"))
    if not specs:
        raise InputError(f"{path} is empty: put a prompt, a tab and a description on each line")
    context.notes.append(f"{path.name}: {len(specs)} texts of the user, not the published 800")
    return specs


def _images(context: PublishedContext, pipeline: StableDiffusion, specs: Sequence[_ImageSpec]) -> list[Path]:
    """The file of each image, in order."""
    from components.experiments.parts.diffusion import painted

    files: list[Path] = []
    rows = context.lists["generated_images"] = []
    with bar("generate images", len(specs), "image") as progress:
        for spec in specs:
            files.append(painted(pipeline, context.under_test, spec.texts, context.seed))
            rows.append((*spec.texts, str(files[-1])))
            progress.update(1)
    return files


def _by_colour(benchmark: str, metric: str, values: Reals, shown: Sequence[_ImageSpec]) -> dict[str, Reals]:
    """All values, and those of each colour."""
    colours = np.array([spec.colour for spec in shown])
    return {f"{benchmark}/{metric}": values} | {
        f"{benchmark}/{colour}/{metric}": values[colours == colour] for colour in sorted(set(colours) - {""})
    }


_CITATION = "PC-CLIP (arXiv 2409.09721), section 4.5, appendices B.4 and D.1"
_FOLDER = "cifar100/cifar-100-binary"
_SOURCE = "cs.toronto.edu/~kriz/cifar.html, cifar-100-binary.tar.gz"
_NEEDS = (RequiredFile("fine_label_names.txt", "100 names", "1 kB", "not stated", _SOURCE),)

BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=2,
        protocol="PC-CLIP, table 5: a judge's mean score of 800 images, by the prompt of appendix B.4",
        citation=_CITATION,
        folder=_FOLDER,
        needs=_NEEDS,
        metrics=metrics("none: a mean of scores", "score"),
        score=score,
        text_only=True,
        options={**judge.OPTION, **_OPTIONS},
    ),
    Benchmark(
        name=CLIP_SCORE,
        version=1,
        protocol="PC-CLIP, appendix D.1: mean CLIPScore, 2.5 * max(cos, 0), of the same 800 images",
        citation="CLIPScore (arXiv 2104.08718), as PC-CLIP (arXiv 2409.09721) uses it",
        folder=_FOLDER,
        needs=_NEEDS,
        metrics=metrics("none: a mean of scores", "clip_score"),
        score=score_clip,
        text_only=True,
        options={**judge.SCORER_OPTION, **_OPTIONS},
    ),
)
