"""VG-Relation and VG-Attribution of ARO: does an image prefer the caption in the right order? (Yuksekgonul et al. 2023)

Rules are those of the released code (github.com/mertyg/vision-language-models-are-bows). The image is cropped to the
record's box. The options are the false and the true caption, and the true one must be strictly more similar, because
`argmax` takes the first of equals. Published figures are macro averages: over the relations that the authors' notebook
keeps, and over attribute pairs with at least 25 cases. `macro_accuracy` is that figure; `macro_accuracy_all` averages
over all groups; `micro_accuracy` is the plain share of cases, which is often quoted by mistake (issue 9 there).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from components.data.test_sets.files import picture_file
from components.data.test_sets.readers.aro import ATTRIBUTION, BOX, CAPTIONS, FILES, FOLDER, RELATION, read_cases
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols.choices import group_numbers, true_over_false
from components.evaluation.scoring.published_context import PublishedContext

_LEFT_OUT = """
adjusting, around, attached to, beside, between, bigger than, biting, boarding, brushing, by, chewing, cleaning,
climbing, close to, coming from, coming out of, contain, crossing, dragging, draped over, drinking, drinking from,
driving, driving down, driving on, eating from, eating in, enclosing, exiting, facing, filled with, floating in,
floating on, flying, flying above, flying in, flying over, flying through, full of, going down, going into,
going through, grazing in, growing in, growing on, guiding, hanging from, hanging in, hanging off, hanging over,
higher than, holding onto, hugging, in between, jumping off, jumping on, jumping over, kept in, larger than, leading,
leaning over, leaving, licking, longer than, looking in, looking into, looking out, looking over, looking through,
lying next to, lying on top of, making, mixed with, mounted on, moving, near, next to, of, on the back of,
on the edge of, on the front of, on the other side of, on the side of, opening, painted on, parked at, parked beside,
parked by, parked in, parked in front of, parked near, parked next to, perched on, petting, piled on, playing,
playing in, playing on, playing with, pouring, reaching for, reading, reflected on, riding on, running in, running on,
running through, seen through, sitting behind, sitting beside, sitting by, sitting in front of, sitting near,
sitting next to, sitting under, skiing down, skiing on, sleeping in, sleeping on, smiling at, sniffing, splashing,
sprinkled on, stacked on, standing against, standing around, standing behind, standing beside, standing in front of,
standing near, standing next to, staring at, stuck in, surrounding, swimming in, swinging, talking to, topped with,
touching, traveling down, traveling on, tying, typing on, underneath, wading in, waiting for, walking across,
walking by, walking down, walking next to, walking through, with, working in, working on, worn on, wrapped around,
wrapped in
"""


def left_out_relations() -> frozenset[str]:
    """Names of the relations that are symmetric or too rare to count.

    Their only source is the authors' notebook "Replicate ARO! VG-Relation, VG-Attribution" (github.com/mertyg/
    vision-language-models-are-bows), which keeps three rare ones (pulled by, pulling, leaning against).
    """
    return frozenset(name.strip() for name in _LEFT_OUT.replace("\n", " ").split(","))


FEWEST = 25
"""Attribute pairs with fewer cases are excluded."""


def score_relations(context: PublishedContext) -> Scores:
    """Accuracy over relations: `macro_accuracy` without those that are symmetric or too rare."""
    rows = read_cases(context, RELATION)
    labels = [row["relation_name"] for row in rows]
    dropped = left_out_relations()
    return _averages(RELATION, context, rows, labels, [label not in dropped for label in labels])


def score_attributions(context: PublishedContext) -> Scores:
    """Accuracy over ordered pairs of attributes: `macro_accuracy` without those of fewer than 25 cases."""
    rows = read_cases(context, ATTRIBUTION)
    labels = ["_".join(map(str, row["attributes"])) for row in rows]
    counts = Counter(labels)
    return _averages(ATTRIBUTION, context, rows, labels, [counts[label] >= FEWEST for label in labels])


def _averages(
    name: str, context: PublishedContext, rows: list[dict[str, Any]], labels: Sequence[str], kept: Sequence[bool]
) -> Scores:
    """The three averages of right cases; without any case that counts for it, the headline is missing."""
    boxes = [(context.folder / "images" / row["image_path"], tuple(row[side] for side in BOX)) for row in rows]
    images = context.images([picture_file(path, box) for path, box in boxes])
    right = true_over_false(images, *context.columns(rows, *CAPTIONS))
    shown = group_numbers([row["image_path"] for row in rows])
    groups, counted = group_numbers(labels), np.array(kept, dtype=bool)
    values = {f"{name}/micro_accuracy": right, f"{name}/macro_accuracy_all": right}
    scores = Scores(values, {f"{name}/macro_accuracy_all": groups}, pictures=dict.fromkeys(values, shown))
    if counted.any():
        macro = f"{name}/macro_accuracy"
        scores.update(Scores({macro: right[counted]}, {macro: groups[counted]}, pictures={macro: shown[counted]}))
    return scores


def _benchmark(name: str, over: str, score: Callable[[PublishedContext], Scores]) -> Benchmark[PublishedContext]:
    return Benchmark(
        name=name,
        version=2,
        protocol=f"released notebook: box crop, macro over {over} and micro",
        citation="When and why vision-language models behave like bags-of-words (arXiv 2210.01936)",
        folder=FOLDER,
        needs=FILES[name],
        metrics=metrics("a tie is a failure", "macro_accuracy", "macro_accuracy_all", "micro_accuracy"),
        score=score,
    )


BENCHMARKS = (
    _benchmark(RELATION, "its relations; over all relations", score_relations),
    _benchmark(ATTRIBUTION, "pairs with 25 cases; over all pairs", score_attributions),
)
