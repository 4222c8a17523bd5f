"""Zero-shot classification of CLIP's image sets, in the protocols of CLIP, PC-CLIP and SemCLIP.

Groups of metrics below `zero_shot_<set>`:

- `ensemble`: CLIP's templates, features averaged (Radford et al. 2021, section 3.1.4; as open_clip and CLIP_benchmark).
- `pc_clip`: one prompt for all sets, "This is a photo of a ..." (PC-CLIP's released code).
- `semclip`: the same and its negation; `delta` is the accuracy without minus with negation (SemCLIP, section 4).
- `extended`: a language model's description of each class in place of a prompt (PC-CLIP, A.3). Only with the option
  `class_descriptions`.
- `comparative...`: prompts corrected by texts about differences (PC-CLIP, section 3.4 and A.2). Only with the option
  `class_differences`. The three most confused pairs of classes are chosen on a fifth of the images, drawn by the seed;
  only the other images count. A pair is only chosen if the table describes it, and its texts update every class that
  they are about. `top1_confused` is the accuracy on images of the chosen pairs' classes if only these can be predicted
  (table 3; `run_comparative_subset` of the released code).

For the papers' released code, with other images and class names, see `zero_shot_released`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from components.core.compute.metrics import Features, Indices, Reals
from components.core.tables.folders import RequiredFile
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols.zero_shot import comparative_weights, prompt_ensemble, top_accuracy
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts import classes as protocol
from research.image_sets.image_set import ImageSet, ImageSetFacts, image_sets
from research.image_sets.reading import (
    ASKED_CLASSES,
    ASKED_PAIRS,
    SLOT,
    ClassDifferences,
    class_descriptions,
    class_differences,
    read_image_set,
)
from research.test_sets.image_sets import image_set_files

GENERIC, NEGATED = "This is a photo of a {c}", "This is not a photo of a {c}"
DESCRIPTIONS, DIFFERENCES = "class_descriptions", "class_differences"
NO_TABLE = f"any table: give --benchmark-option {DIFFERENCES}=<table>"
_DEEP = 5


def score(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """All groups whose inputs exist."""
    name = f"zero_shot_{facts.name}"
    image_set = read_image_set(context, facts)
    images, classes = context.images(image_set.pictures), image_set.class_names or ()
    plain = protocol.Classified(images, image_set.labels, class_weights(context, [GENERIC], classes))
    scores = Scores(semclip_values(context, f"{name}/semclip", plain, classes, NEGATED))
    _add_ensemble(scores, context, f"{name}/ensemble", plain, image_set)
    _add_recall(scores, f"{name}/pc_clip", top_accuracy(images, plain.weights, plain.labels), plain.labels)
    add_extended(scores, context, name, plain, classes, lambda _, text: text)
    _add_comparative(scores, context, name, classes, plain)
    return scores


def _add_ensemble(
    scores: Scores, context: PublishedContext, prefix: str, plain: protocol.Classified, images: ImageSet
) -> None:
    weights = class_weights(context, images.templates or (), images.class_names or ())
    _add_recall(scores, prefix, top_accuracy(plain.images, weights, plain.labels), plain.labels)
    if len(weights) > _DEEP:
        scores.values[f"{prefix}/top5"] = top_accuracy(plain.images, weights, plain.labels, _DEEP)


def _add_recall(scores: Scores, prefix: str, right: Reals, labels: Indices) -> None:
    scores.values[f"{prefix}/top1"] = right
    scores.values[f"{prefix}/mean_per_class_recall"] = right
    scores.strata[f"{prefix}/mean_per_class_recall"] = labels


def semclip_values(
    context: PublishedContext, prefix: str, plain: protocol.Classified, classes: Sequence[str], negated: str
) -> dict[str, Reals]:
    """SemCLIP's accuracies with the plain prompt and with the negated one, and their difference."""
    right = top_accuracy(plain.images, plain.weights, plain.labels)
    wrong = top_accuracy(plain.images, class_weights(context, [negated], classes), plain.labels)
    return {f"{prefix}/top1": right, f"{prefix}/top1_negated": wrong, f"{prefix}/delta": right - wrong}


def add_extended(
    scores: Scores,
    context: PublishedContext,
    name: str,
    plain: protocol.Classified,
    classes: Sequence[str],
    worded: Callable[[int, str], str],
) -> None:
    """Add the accuracy with a language model's descriptions of `classes`, if there are any.

    `worded` makes the prompt of a class's number and a description.
    """
    context.lists[ASKED_CLASSES] = [(one,) for one in classes]
    path = class_texts(context, DESCRIPTIONS)
    descriptions = class_descriptions(path, classes) if path else None
    if descriptions is None:
        where = path or f"any table: give --benchmark-option {DESCRIPTIONS}=<table>"
        context.left_out.append(f"extended: no description of these classes in {where}")
    else:
        texts = [[worded(number, text) for text in some] for number, some in enumerate(descriptions)]
        weights = np.concatenate([prompt_ensemble(context.texts(some)[:, None]) for some in texts])
        scores.values[f"{name}/extended/top1"] = top_accuracy(plain.images, weights, plain.labels)


def _add_comparative(
    scores: Scores, context: PublishedContext, name: str, classes: Sequence[str], plain: protocol.Classified
) -> None:
    """Add the accuracy at each alpha, with pairs chosen on held-out images."""
    held = protocol.held_out(plain.labels, protocol.HELD_OUT, context.seed)
    chosen_by = plain.part(held)
    request_differences(context, classes, chosen_by.confused())
    path = class_texts(context, DIFFERENCES)
    differences = class_differences(path, classes) if path else None
    ends = described_pairs(differences)
    pairs = chosen_by.confused({(min(pair), max(pair)) for pair in ends})
    if differences is None or not pairs:
        context.left_out.append(f"comparative: no text on two classes that are confused in {path or NO_TABLE}")
        return
    used = [row for row, pair in enumerate(ends) if (min(pair), max(pair)) in pairs]
    add_corrected(scores, context, f"{name}/comparative", plain.part(~held), differences, used)


def request_differences(context: PublishedContext, classes: Sequence[str], pairs: Sequence[protocol.Pair]) -> None:
    """List the pairs, in both directions, as inputs of the prompt task `class_difference`."""
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    context.lists[ASKED_PAIRS] = [(classes[one], classes[other]) for one, other in dict.fromkeys(both)]


def described_pairs(differences: ClassDifferences | None) -> list[protocol.Pair]:
    """The described and the other class of each text."""
    if differences is None:
        return []
    return list(zip(differences.described.tolist(), differences.other.tolist(), strict=True))


def add_corrected(
    scores: Scores,
    context: PublishedContext,
    prefix: str,
    plain: protocol.Classified,
    differences: ClassDifferences,
    used: list[int],
) -> None:
    """Add the accuracies of the plain classifier and of those that the texts of rows `used` correct."""
    texts = context.texts([differences.texts[row] for row in used])
    described, other = differences.described[used], differences.other[used]
    confused = {*described.tolist(), *other.tolist()}

    def report(group: str, weights: Features) -> None:
        scores.values[f"{prefix}_{group}/top1"] = top_accuracy(plain.images, weights, plain.labels)
        among = protocol.accuracy_among(plain.images, weights, plain.labels, confused)
        if among is not None:
            scores.scalars[f"{prefix}_{group}/top1_confused"] = among

    report("plain", plain.weights)
    for alpha in protocol.ALPHAS:
        report(f"alpha_{alpha}", comparative_weights(plain.weights, texts, described, other, alpha))


def class_weights(context: PublishedContext, templates: Sequence[str], classes: Sequence[str]) -> Features:
    """Classifier weights `[classes, dim]` of each class in every template, `{c}` standing for the class."""
    texts = [filled(template, name) for template in templates for name in classes]
    return prompt_ensemble(context.texts(texts).reshape(len(templates), len(classes), -1))


def filled(template: str, name: str) -> str:
    """The template with the class in its place."""
    # Not `format`: templates come from files, and a format string can reach into objects.
    return template.replace(SLOT, name)


def class_texts(context: PublishedContext, option: str) -> Path | None:
    """The file that the option names, or the one next to the images; None if there is neither."""
    if option in context.options:
        return Path(str(context.options[option]))
    default = context.folder / f"{option}.parquet"
    return default if default.is_file() else None


def _generated(option: str, what: str) -> RequiredFile:
    source = f"`dvc repro validate@{option}`"
    return RequiredFile(f"{option}.parquet", what, "1 MB", "of the model that wrote it", source, optional=True)


TEXT_FILES = (
    _generated(DESCRIPTIONS, "descriptions of the classes"),
    _generated(DIFFERENCES, "differences between classes"),
)
METRICS = (
    *metrics(protocol.TIE, "top1", "top5", "mean_per_class_recall"),
    *metrics(protocol.TIE, "top1_negated", higher_is_better=False),
    *metrics(protocol.TIE, "delta", "top1_confused"),
)
OPTIONS = {
    DESCRIPTIONS: "a table of class descriptions, or a .txt with one line for each class of the set",
    DIFFERENCES: "a table of class differences",
}


def _benchmark(facts: ImageSetFacts) -> Benchmark[PublishedContext]:
    return Benchmark(
        name=f"zero_shot_{facts.name}",
        version=2,
        protocol="groups: CLIP's templates, PC-CLIP's and SemCLIP's prompt, descriptions and differences of classes",
        citation=facts.citation,
        folder=facts.name,
        needs=(
            *image_set_files(facts, f"{facts.title}, {facts.test[0]:,} test images of {facts.classes} classes"),
            *TEXT_FILES,
        ),
        metrics=METRICS,
        score=partial(score, facts=facts),
        options=OPTIONS,
    )


BENCHMARKS = tuple(_benchmark(facts) for facts in image_sets().values())
