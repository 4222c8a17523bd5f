"""Zero-shot classification as the released code of PC-CLIP and of SemCLIP has it, which the papers' tables show.

`zero_shot_<set>_pc_clip_released` (github.com/dsam99/pc_clip, run.py and data/dataset.py): one prompt with the code's
own class names. EuroSAT and SUN397 are random tenths of all images, drawn by torch's seed 0: 2,700 and 10,876 images.
The draw is of positions in a list; torchvision lists SUN397 in the order of the file system, which nobody can know, so
that here, where the list is sorted, the tenth is another one of the same size. Groups:

- no group: the prompt alone; `margin` is how sure the classifier is (section 4.3).
- `extended`: the prompt, then a description of the class. Only with the option `class_descriptions`.
- `comparative...`: see `comparative_prompting`. Only with the option `class_differences`.

`zero_shot_<set>_semclip_released` (SemCLIP's src/evaluation.py): the training splits that torchvision gives when asked
for none, its class names, one prompt and its negation in lower case. Images are prepared as open_clip does.
"""

from __future__ import annotations

from functools import partial

from components.benchmarks.benchmark import Benchmark, Tested
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts, image_sets
from components.benchmarks.image_sets.image_set import ImageSet
from components.benchmarks.image_sets.reading import PC_CLIP, SEMCLIP, read_image_set, released_names
from components.benchmarks.protocols.geometry import drawn
from components.benchmarks.protocols.zero_shot import (
    Classified,
    confidence_margins,
    released_scores,
    top_accuracy,
)
from components.benchmarks.published.zero_shot import (
    DIFFERENCES,
    GENERIC,
    METRICS,
    NEGATED,
    OPTIONS,
    TEXT_NEEDS,
    add_extended,
    class_texts,
    class_weights,
    filled,
    image_needs,
    semclip_values,
)
from components.benchmarks.scores import Scores, metrics

PC_CLIP_SETS = ("cifar100", "cub", "eurosat", "flowers102", "sun397")
SEMCLIP_SETS = ("cifar10", "cifar100", "flowers102", "food101", "pets")
_TRAINED_ON = 0.9
"""Share of a set without a split that PC-CLIP's code sets aside for training."""
_GARBAGE = "iostream"
"""A description with this is no text; the released code takes the class's name instead."""


def score_pc_clip(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """All groups whose inputs are there."""
    name = f"zero_shot_{facts.name}_pc_clip_released"
    found = pc_clip_images(context, facts)
    classes = released_names(context.folder, facts, found, PC_CLIP)
    plain = Classified(context.images(found.pictures), found.labels, class_weights(context, [GENERIC], classes))
    scores = Scores(
        {
            f"{name}/top1": top_accuracy(plain.images, plain.weights, plain.labels),
            f"{name}/margin": confidence_margins(plain.images, plain.weights),
        }
    )
    known = found.class_names or ()

    def worded(number: int, text: str) -> str:
        return f"{filled(GENERIC, classes[number])}. {classes[number] if _GARBAGE in text else text}"

    add_extended(scores, context, name, plain, known, worded)
    scores.update(released_scores(context, name, class_texts(context, DIFFERENCES), (known, classes), plain))
    return scores


def tested_pc_clip(context: PublishedContext, facts: ImageSetFacts) -> Tested:
    """The images of a test split that the code draws itself."""
    return Tested(pictures=pc_clip_images(context, facts).pictures)


def score_semclip(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """SemCLIP's accuracies on the training split."""
    found = read_image_set(context, facts, "train")
    classes = released_names(context.folder, facts, found, SEMCLIP)
    weights = class_weights(context, [GENERIC.lower()], classes)
    plain = Classified(context.images(found.pictures), found.labels, weights)
    return Scores(semclip_values(context, f"zero_shot_{facts.name}_semclip_released", plain, classes, NEGATED.lower()))


def pc_clip_images(context: PublishedContext, facts: ImageSetFacts, split: str = "test") -> ImageSet:
    """The published split, or the code's own nine tenths for `train` and tenth for `test` of a set that has `whole`.

    Raises:
        InputError: the images are missing or not as published.
    """
    if facts.whole is None:
        return read_image_set(context, facts, split)
    found = read_image_set(context, facts, "whole")
    count = len(found.labels)
    order, cut = drawn(count, count, 0), int(count * _TRAINED_ON)
    rows = order[:cut] if split == "train" else order[cut:]
    return found.of_rows(rows)


def _pc_clip_benchmark(facts: ImageSetFacts) -> Benchmark[PublishedContext]:
    shown = f"all {facts.whole:,} images (a tenth is tested)" if facts.whole else f"{facts.test[0]:,} test images"
    return Benchmark(
        name=f"zero_shot_{facts.name}_pc_clip_released",
        version=2,
        protocol="PC-CLIP's released code: its class names and test images, one prompt, ordered confusions",
        citation="PC-CLIP (arXiv 2409.09721)",
        folder=facts.name,
        needs=(*image_needs(facts, f"{facts.title}, {shown} of {facts.classes} classes"), *TEXT_NEEDS),
        metrics=(*METRICS, *metrics("none: a difference of probabilities", "margin")),
        score=partial(score_pc_clip, facts=facts),
        options=OPTIONS,
        tested=partial(tested_pc_clip, facts=facts) if facts.whole else None,
    )


def _semclip_benchmark(facts: ImageSetFacts) -> Benchmark[PublishedContext]:
    return Benchmark(
        name=f"zero_shot_{facts.name}_semclip_released",
        version=2,
        protocol="SemCLIP's released code: torchvision's training split and class names, one prompt and its negation",
        citation="SemCLIP (arXiv 2511.16527)",
        folder=facts.name,
        needs=image_needs(facts, f"{facts.title}, {facts.train[0]:,} training images of {facts.classes} classes"),
        metrics=METRICS,
        score=partial(score_semclip, facts=facts),
    )


BENCHMARKS = (
    *(_pc_clip_benchmark(image_sets()[name]) for name in PC_CLIP_SETS),
    *(_semclip_benchmark(image_sets()[name]) for name in SEMCLIP_SETS),
)
