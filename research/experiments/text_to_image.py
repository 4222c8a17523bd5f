"""Arithmetic of text features in generated images (PC-CLIP, section 4.5, table 5 and appendix D).

For each class of CIFAR-100 and each of 8 colours an image is generated from the sum of the features of "This is a
photo of {class}" and of the colour. For `text_to_image` a judge scores from 1 to 5 how well it shows the class in that
colour, by the prompt of appendix B.4; the paper's is GPT-4o-mini. `text_to_image_clip_score` is CLIPScore (Hessel et
al. 2021) with "This is a photo of a {colour} {class}". Both share their images, which are cached in
`state/generated_images`; `generated_images/<encoder>/<benchmark>.tsv` below the results lists them with their texts.
For the pipeline see parts/diffusion.py, for the judge parts/judge.py.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from components.captions.prompting.request import PICTURE, PromptPicture
from components.captions.prompting.task import question_alone
from components.cli.templates import rendered
from components.core.compute.metrics import Reals
from components.core.pictures.rgb import open_picture
from components.core.system.discovery import choose
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.progress import bar
from components.core.tables.files import atomic_file, content_hash
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import picture_file
from components.data.test_sets.readers.difference_sets import lines
from components.encoders.under_test import EncoderUnderTest, embed_new
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.choices import row_cosine
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts import judge

NAME, CLIP_SCORE, CACHE = "text_to_image", "text_to_image_clip_score", Path("state/generated_images")
COLOURS = ("black", "white", "blue", "brown", "gray", "orange", "red", "yellow")
"""The colours among the attributes of AwA2."""
SCORER = "ViT-bigG-14:laion2b_s39b_b160k"
"""A ViT-G/14 trained on the English part of LAION-2B, as in appendix D.1."""
_OPTIONS = {
    "diffusion": "folder or name of Stable Diffusion XL",
    "diffusion_tower": "the text tower that the encoder replaces: second (ViT-bigG-14, section 4.5; the default) or "
    "first (ViT-L-14, appendix D.2)",
    "texts": "a file with a prompt, a tab and a description on each line, as in figures 4, 6 and 7",
}
_QUESTION = Path(__file__).with_name("parts") / "image_judge.j2"


def score(context: PublishedContext) -> Scores:
    """The judge's mean score of all images."""
    # Checked before hours of generation.
    judge.judge_of(context)
    specs = _painted(context)
    questions = []
    for one in specs:
        text = rendered(_QUESTION, prompt=one.prompt, picture=PICTURE)
        questions.append(judge.JudgeQuestion(question_alone(text), (_jpeg(one.file),)))
    values, rows = judge.judged(context, NAME, questions, read_score)
    return _by_colour(NAME, "score", values, [specs[row] for row in rows])


def read_score(answer: str) -> float | None:
    """The last score from 1 to 5 in `answer`, a field of JSON; None if there is none."""
    found = [float(number) for number in re.findall(r'"score"\s*:\s*(\d+(?:\.\d+)?)\s*[,}]', answer)]
    return next((number for number in reversed(found) if 1 <= number <= 5), None)


def score_clip(context: PublishedContext) -> Scores:
    """The mean of `2.5 * max(cos, 0)` of all images and their texts, by another encoder."""
    scorer = context.options.get("scorer", SCORER)
    if not isinstance(scorer, EncoderUnderTest):
        from components.registry.encoder_lookup import find_encoder

        with prefixed_errors("--benchmark-option scorer"):
            scorer = find_encoder(str(scorer), device=context.under_test.device)
    specs = _painted(context)
    images = context.image_features.of(scorer, [picture_file(spec.file) for spec in specs])
    cosines = row_cosine(images, embed_new(scorer.encoder, [spec.prompt for spec in specs], {}))
    return _by_colour(CLIP_SCORE, "clip_score", 2.5 * np.maximum(cosines.astype(np.float64), 0), specs)


@dataclass(frozen=True)
class _Painted:
    """An image: the texts whose features are added, the text that it is scored with, the colour, and the file."""

    texts: tuple[str, str]
    prompt: str
    colour: str
    file: Path


def _painted(context: PublishedContext) -> list[_Painted]:
    """Every image, generated unless its file exists."""
    pipeline, tested = _pipeline(context), context.under_test
    painted: list[_Painted] = []
    texts = _texts(context)
    with bar("generate images", len(texts), "image") as progress:
        for pair, prompt, colour in texts:
            file = CACHE / f"{content_hash(pipeline.name, tested.sha256, *pair, str(context.seed))}.png"
            if not file.exists():
                image = pipeline.paint(tested, pair, context.seed)
                with atomic_file(file) as temporary:
                    image.save(temporary, "PNG")
            painted.append(_Painted(pair, prompt, colour, file))
            progress.update(1)
    context.lists["generated_images"] = [(*one.texts, str(one.file)) for one in painted]
    return painted


def _pipeline(context: PublishedContext) -> Any:
    from research.experiments.parts.diffusion import TOWERS, StableDiffusion

    chosen = context.options.get("diffusion")
    if not chosen:
        raise InputError("this benchmark generates images: give --benchmark-option diffusion=<Stable Diffusion XL>")
    key = "--benchmark-option diffusion_tower: tower"
    tower = choose(list(TOWERS), str(context.options.get("diffusion_tower", "second")), key)
    return StableDiffusion(chosen, tower) if isinstance(chosen, str) else chosen


def _texts(context: PublishedContext) -> list[tuple[tuple[str, str], str, str]]:
    """Texts whose features are added, the text of the score, and the colour; the user's, or all classes and colours."""
    if chosen := context.options.get("texts"):
        path = Path(str(chosen))
        rows = [tuple(part.strip() for part in line.split("\t", 1)) for line in lines(path)]
        if not rows or not all(len(row) == 2 and all(row) for row in rows):
            raise InputError(f"{path}: each line needs a prompt, a tab and a description: fix it")
        context.notes.append(f"{path.name}: {len(rows)} texts of the user, not the published 800")
        return [((prompt, description), f"{prompt} {description}", "") for prompt, description in rows]
    path = context.folder / "fine_label_names.txt"
    names = [name.replace("_", " ") for name in lines(path)]
    context.expect(path.name, len(names), 100)
    photo = "This is a photo of"
    pairs = [(name, colour) for name in names for colour in COLOURS]
    return [((f"{photo} {name}", colour), f"{photo} a {colour} {name}", colour) for name, colour in pairs]


def _jpeg(path: Path) -> PromptPicture:
    content = io.BytesIO()
    with open_picture(path) as image:
        # A quarter of the bytes of a PNG, of which 800 would be more than a gigabyte.
        image.convert("RGB").save(content, "JPEG", quality=95)
    return PromptPicture(content.getvalue(), "image/jpeg")


def _by_colour(benchmark: str, metric: str, values: Reals, shown: list[_Painted]) -> Scores:
    colours = {"colour": [one.colour for one in shown]} if shown[0].colour else {}
    return grouped(benchmark, {metric: values}, np.arange(len(shown)), colours)


_CLASSES = "cs.toronto.edu/~kriz/cifar.html, cifar-100-binary.tar.gz"
_JUDGED = Benchmark(
    name=NAME,
    version=2,
    protocol="PC-CLIP, table 5: a judge's mean score of 800 images, by the prompt of appendix B.4",
    citation="PC-CLIP (arXiv 2409.09721), section 4.5, appendices B.4 and D.1",
    folder="cifar100/cifar-100-binary",
    needs=(RequiredFile("fine_label_names.txt", "100 names", "1 kB", "not stated", _CLASSES),),
    metrics=metrics("none: a mean of scores", "score"),
    score=score,
    text_only=True,
    options={**judge.OPTION, **_OPTIONS},
)
BENCHMARKS = (
    _JUDGED,
    replace(
        _JUDGED,
        name=CLIP_SCORE,
        version=1,
        protocol="PC-CLIP, appendix D.1: mean CLIPScore, 2.5 * max(cos, 0), of the same 800 images",
        citation="CLIPScore (arXiv 2104.08718), as PC-CLIP (arXiv 2409.09721) uses it",
        metrics=metrics("none: a mean of scores", "clip_score"),
        score=score_clip,
        options={"scorer": f"the scoring encoder, as of --encoder; {SCORER} by default", **_OPTIONS},
    ),
)
