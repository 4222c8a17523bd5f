"""Zero-shot classification as in the released code of PC-CLIP and of SemCLIP, which the papers' tables show.

`zero_shot_<set>_pc_clip_released` (github.com/dsam99/pc_clip, run.py and data/dataset.py): one prompt with the code's
own class names. EuroSAT and SUN397 are random tenths of all images, drawn by torch's seed 0: 2,700 and 10,876 images.
The draw is of positions in a list; torchvision lists SUN397 in file-system order, which is unknown. Here the list is
sorted, so the tenth is another one of the same size. Groups:

- no group: only the prompt; `margin` is the classifier's confidence (section 4.3).
- `extended`: the prompt, then a description of the class. Only with the option `class_descriptions`.
- `comparative...`: as in `zero_shot`, but pairs are the three largest cells of the confusion matrix of the test images,
  which are then scored, with separate pairs for each encoder. Each cell has one text, "how the true class differs from
  the predicted one", which updates the predicted class. For EuroSAT the released list of the base model has both
  directions of its three pairs (group `..._both`), that of the fine-tuned ones a single one. The rule by which the
  authors wrote the list is inferred from its order and from the code's output. Without the text of a cell, the group is
  skipped. Only with the option `class_differences`.

`zero_shot_<set>_semclip_released` (SemCLIP's src/evaluation.py): the training splits that torchvision returns by
default, its class names, one prompt and its negation in lower case. Images are prepared as in open_clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols.zero_shot import top_accuracy
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments import zero_shot
from research.experiments.parts import classes as protocol
from research.image_sets.image_set import ImageSetFacts, image_sets
from research.image_sets.reading import (
    PC_CLIP,
    SEMCLIP,
    class_differences,
    pc_clip_images,
    read_image_set,
    released_names,
)
from research.test_sets.image_sets import image_set_files

PC_CLIP_SETS = ("cifar100", "cub", "eurosat", "flowers102", "sun397")
SEMCLIP_SETS = ("cifar10", "cifar100", "flowers102", "food101", "pets")
_GARBAGE = "iostream"
"""Marks descriptions that are not texts; the released code uses the class's name instead."""


def score_pc_clip(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """All groups whose inputs exist."""
    name = f"zero_shot_{facts.name}_pc_clip_released"
    image_set = pc_clip_images(context, facts)
    classes = released_names(context.folder, facts, image_set, PC_CLIP)
    weights = zero_shot.class_weights(context, [zero_shot.GENERIC], classes)
    plain = protocol.Classified(context.images(image_set.pictures), image_set.labels, weights)
    scores = Scores(
        {
            f"{name}/top1": top_accuracy(plain.images, plain.weights, plain.labels),
            f"{name}/margin": protocol.confidence_margins(plain.images, plain.weights),
        }
    )
    names = image_set.class_names or ()

    def worded(number: int, text: str) -> str:
        return (
            f"{zero_shot.filled(zero_shot.GENERIC, classes[number])}. {classes[number] if _GARBAGE in text else text}"
        )

    zero_shot.add_extended(scores, context, name, plain, names, worded)
    _add_comparative(scores, context, name, (names, classes), plain)
    return scores


def _add_comparative(
    scores: Scores, context: PublishedContext, name: str, names: Sequence[Sequence[str]], plain: protocol.Classified
) -> None:
    """Add the accuracy at each alpha as in the released code, on the test images and the classifier of `plain`.

    The table may use any of the lists of class `names`; requests use the last.
    """
    predictions = protocol.predicted(plain.images, plain.weights)
    cells = protocol.confused_cells(
        protocol.confusion_matrix(plain.labels, predictions, len(plain.weights)), protocol.PAIRS
    )
    zero_shot.request_differences(context, names[-1], cells)
    path = zero_shot.class_texts(context, zero_shot.DIFFERENCES)
    differences = class_differences(path, *names) if path else None
    ends = zero_shot.described_pairs(differences)
    for group, wanted in (("", cells), ("_both", [*cells, *(cell[::-1] for cell in cells)])):
        missing = [pair for pair in wanted if pair not in ends]
        if missing:
            one, other = (names[-1][number] for number in missing[0])
            lacks = (
                f"no text on how '{one}' differs from '{other}' ({len(missing)} such) in {path or zero_shot.NO_TABLE}"
            )
            context.left_out.append(f"comparative{group}: {lacks}")
        elif differences is not None and wanted:
            used = [row for row, pair in enumerate(ends) if pair in wanted]
            zero_shot.add_corrected(scores, context, f"{name}/comparative{group}", plain, differences, used)


def score_semclip(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """SemCLIP's accuracies on the training split."""
    image_set = read_image_set(context, facts, "train")
    classes = released_names(context.folder, facts, image_set, SEMCLIP)
    weights = zero_shot.class_weights(context, [zero_shot.GENERIC.lower()], classes)
    plain = protocol.Classified(context.images(image_set.pictures), image_set.labels, weights)
    return Scores(
        zero_shot.semclip_values(
            context, f"zero_shot_{facts.name}_semclip_released", plain, classes, zero_shot.NEGATED.lower()
        )
    )


def _pc_clip_benchmark(facts: ImageSetFacts) -> Benchmark[PublishedContext]:
    shown = f"all {facts.whole:,} images (a tenth is tested)" if facts.whole else f"{facts.test[0]:,} test images"
    return Benchmark(
        name=f"zero_shot_{facts.name}_pc_clip_released",
        version=2,
        protocol="PC-CLIP's released code: its class names and test images, one prompt, ordered confusions",
        citation="PC-CLIP (arXiv 2409.09721)",
        folder=facts.name,
        needs=(*image_set_files(facts, f"{facts.title}, {shown} of {facts.classes} classes"), *zero_shot.TEXT_FILES),
        metrics=(*zero_shot.METRICS, *metrics("none: a difference of probabilities", "margin")),
        score=partial(score_pc_clip, facts=facts),
        options=zero_shot.OPTIONS,
    )


def _semclip_benchmark(facts: ImageSetFacts) -> Benchmark[PublishedContext]:
    return Benchmark(
        name=f"zero_shot_{facts.name}_semclip_released",
        version=2,
        protocol="SemCLIP's released code: torchvision's training split and class names, one prompt and its negation",
        citation="SemCLIP (arXiv 2511.16527)",
        folder=facts.name,
        needs=image_set_files(facts, f"{facts.title}, {facts.train[0]:,} training images of {facts.classes} classes"),
        metrics=zero_shot.METRICS,
        score=partial(score_semclip, facts=facts),
    )


BENCHMARKS = (
    *(_pc_clip_benchmark(image_sets()[name]) for name in PC_CLIP_SETS),
    *(_semclip_benchmark(image_sets()[name]) for name in SEMCLIP_SETS),
)
