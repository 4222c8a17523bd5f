"""Zero-shot classification of CLIP's image sets, in the protocols of CLIP, PC-CLIP and SemCLIP.

Groups of metrics below `zero_shot_<set>`:

- `ensemble`: CLIP's templates, features averaged (Radford et al. 2021, section 3.1.4; as open_clip and CLIP_benchmark).
- `pc_clip`: one prompt for all sets, "This is a photo of a ..." (PC-CLIP's released code).
- `semclip`: the same and its negation; `delta` is by how much accuracy is higher without it (SemCLIP, section 4).
- `extended`: a language model's description of each class in place of a prompt (PC-CLIP, A.3). Only with the option
  `class_descriptions`.
- `comparative...`: see `comparative_prompting`. Only with the option `class_differences`.

What the released code of PC-CLIP and SemCLIP scores, with other images and class names: see `zero_shot_released`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.class_texts import ASKED_CLASSES, class_descriptions
from components.benchmarks.image_sets.facts import ImageSetFacts, image_sets
from components.benchmarks.image_sets.image_set import ImageSet
from components.benchmarks.image_sets.reading import CLASS_NAMES, SLOT, TEMPLATES, read_image_set
from components.benchmarks.protocols.zero_shot import TIE, Classified, comparative_scores, prompt_ensemble, top_accuracy
from components.benchmarks.scores import Scores, metrics
from components.core.metrics import Features, Indices, Reals

GENERIC, NEGATED = "This is a photo of a {c}", "This is not a photo of a {c}"
DESCRIPTIONS, DIFFERENCES = "class_descriptions", "class_differences"
_DEEP = 5


def score(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """All groups whose inputs are there."""
    name = f"zero_shot_{facts.name}"
    found = read_image_set(context, facts)
    images, classes = context.images(found.pictures), found.class_names or ()
    plain = Classified(images, found.labels, class_weights(context, [GENERIC], classes))
    scores = Scores(semclip_values(context, f"{name}/semclip", plain, classes, NEGATED))
    _ensemble(scores, context, f"{name}/ensemble", plain, found)
    _with_recall(scores, f"{name}/pc_clip", top_accuracy(images, plain.weights, plain.labels), plain.labels)
    add_extended(scores, context, name, plain, classes, lambda _, text: text)
    scores.update(comparative_scores(context, name, class_texts(context, DIFFERENCES), classes, plain))
    return scores


def tested(context: PublishedContext, facts: ImageSetFacts) -> Tested:
    """The images of the test split."""
    return Tested(pictures=read_image_set(context, facts).pictures)


def _ensemble(scores: Scores, context: PublishedContext, prefix: str, plain: Classified, found: ImageSet) -> None:
    weights = class_weights(context, found.templates or (), found.class_names or ())
    _with_recall(scores, prefix, top_accuracy(plain.images, weights, plain.labels), plain.labels)
    if len(weights) > _DEEP:
        scores.values[f"{prefix}/top5"] = top_accuracy(plain.images, weights, plain.labels, _DEEP)


def semclip_values(
    context: PublishedContext, prefix: str, plain: Classified, classes: Sequence[str], negated: str
) -> dict[str, Reals]:
    """SemCLIP's accuracies with the plain prompt and with the negated one, and their difference."""
    right = top_accuracy(plain.images, plain.weights, plain.labels)
    wrong = top_accuracy(plain.images, class_weights(context, [negated], classes), plain.labels)
    return {f"{prefix}/top1": right, f"{prefix}/top1_negated": wrong, f"{prefix}/delta": right - wrong}


def add_extended(
    scores: Scores,
    context: PublishedContext,
    name: str,
    plain: Classified,
    classes: Sequence[str],
    worded: Callable[[int, str], str],
) -> None:
    """Accuracy with a language model's descriptions of `classes`, where there are some.

    Args:
        scores: gets it, in a group below the benchmark `name`.
        context, name, plain: the benchmark's.
        classes: names by which the descriptions are looked up.
        worded: the prompt of a class's number and a description.
    """
    context.lists[ASKED_CLASSES] = [(one,) for one in classes]
    path = class_texts(context, DESCRIPTIONS)
    descriptions = class_descriptions(path, classes) if path else None
    if descriptions is None:
        where = path or f"any table: give --option {DESCRIPTIONS}=<table>"
        context.left_out.append(f"extended: no description of these classes in {where}")
    else:
        texts = [[worded(number, text) for text in some] for number, some in enumerate(descriptions)]
        weights = np.concatenate([prompt_ensemble(context.texts(some)[:, None]) for some in texts])
        scores.values[f"{name}/extended/top1"] = top_accuracy(plain.images, weights, plain.labels)


def _with_recall(scores: Scores, prefix: str, right: Reals, labels: Indices) -> None:
    scores.values[f"{prefix}/top1"] = right
    scores.values[f"{prefix}/mean_per_class_recall"] = right
    scores.strata[f"{prefix}/mean_per_class_recall"] = labels


def class_weights(context: PublishedContext, templates: Sequence[str], classes: Sequence[str]) -> Features:
    """Classifier weights `[classes, dim]` of each class in every template, `{c}` standing for the class."""
    texts = [filled(template, name) for template in templates for name in classes]
    return prompt_ensemble(context.texts(texts).reshape(len(templates), len(classes), -1))


def filled(template: str, name: str) -> str:
    """The template with the class in its place."""
    # Not `format`: templates come from files, and a format string can reach into objects.
    return template.replace(SLOT, name)


def class_texts(context: PublishedContext, option: str) -> Path | None:
    """The file that the option names, or the one beside the images; None where there is neither."""
    beside = context.folder / f"{option}.parquet"
    if option in context.options:
        return Path(str(context.options[option]))
    return beside if beside.is_file() else None


def image_needs(facts: ImageSetFacts, what: str) -> tuple[Need, ...]:
    """The folder of an image set, and what may lie in it beside the images."""
    own = (("one class name per line", CLASS_NAMES), ("one prompt per line, {c} for the class", TEMPLATES))
    beside = tuple(Need(path, told, "1 kB", facts.licence, facts.source, optional=True) for told, path in own)
    return (Need(".", what, f"about {facts.size}", facts.licence, facts.source), *beside)


def _generated(option: str, told: str) -> Need:
    """The file beside the images that the option stands for."""
    source = f"`dvc repro validate@{option}`"
    return Need(f"{option}.parquet", told, "1 MB", "of the model that wrote it", source, optional=True)


TEXT_NEEDS = (
    _generated(DESCRIPTIONS, "descriptions of the classes"),
    _generated(DIFFERENCES, "differences between classes"),
)
METRICS = (
    *metrics(TIE, "top1", "top5", "mean_per_class_recall"),
    *metrics(TIE, "top1_negated", higher_is_better=False),
    *metrics(TIE, "delta", "top1_confused"),
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
            *image_needs(facts, f"{facts.title}, {facts.test[0]:,} test images of {facts.classes} classes"),
            *TEXT_NEEDS,
        ),
        metrics=METRICS,
        score=partial(score, facts=facts),
        options=OPTIONS,
        tested=partial(tested, facts=facts),
    )


BENCHMARKS = tuple(_benchmark(facts) for facts in image_sets().values())
