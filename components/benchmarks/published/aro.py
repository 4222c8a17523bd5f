"""VG-Relation and VG-Attribution of ARO: does an image prefer the caption in the right order? (Yuksekgonul et al. 2023)

Format and rules are those of the released code (github.com/mertyg/vision-language-models-are-bows): the image is cut to
the record's box, the options are the false and the true caption, and the true one must be strictly more similar, for
`argmax` takes the first of equals. Published figures are macro averages: over the relations that the authors' notebook
keeps, and over attribute pairs with at least 25 cases. `macro_accuracy` is that; over everything it is
`macro_accuracy_all`; `micro_accuracy` is the plain share of cases, as often quoted by mistake (issue 9 there).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.pictures import picture_file
from components.benchmarks.encoding.published_context import PublishedContext, read_rows
from components.benchmarks.protocols.choices import group_numbers, row_cosine
from components.benchmarks.scores import Scores, metrics
from components.core.metrics import Reals, strictly_greater

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

    From the authors' notebook "Replicate ARO! VG-Relation, VG-Attribution" (github.com/mertyg/
    vision-language-models-are-bows), the only place that has them; three rare ones stay in there and here
    (pulled by, pulling, leaning against).
    """
    return frozenset(name.strip() for name in _LEFT_OUT.replace("\n", " ").split(","))


RELATION, ATTRIBUTION = "vg_relation", "vg_attribution"
RELATIONS, ATTRIBUTIONS = 23_937, 28_748
"""Published numbers of cases; those of VG-Relation include the symmetric relations."""
FEWEST = 25
"""Cases below which an attribute pair is left out."""
_BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
_CAPTIONS = ("true_caption", "false_caption")
_COLUMNS = {"image_path": str, **dict.fromkeys(_BOX, int), **dict.fromkeys(_CAPTIONS, str)}


def score_relations(path: str, context: PublishedContext) -> Scores:
    """Accuracy over relations: `macro_accuracy` without those that are symmetric or too rare."""
    rows = read_rows(context, path, {**_COLUMNS, "relation_name": str})
    context.expect(path, len(rows), RELATIONS)
    labels = [row["relation_name"] for row in rows]
    dropped = left_out_relations()
    return _averages(RELATION, context, rows, labels, [label not in dropped for label in labels])


def score_attributions(path: str, context: PublishedContext) -> Scores:
    """Accuracy over ordered pairs of attributes: `macro_accuracy` without those of fewer than 25 cases."""
    rows = read_rows(context, path, {**_COLUMNS, "attributes": list})
    context.expect(path, len(rows), ATTRIBUTIONS)
    labels = ["_".join(map(str, row["attributes"])) for row in rows]
    counts = Counter(labels)
    return _averages(ATTRIBUTION, context, rows, labels, [counts[label] >= FEWEST for label in labels])


def _averages(
    name: str, context: PublishedContext, rows: list[dict[str, Any]], labels: Sequence[str], kept: Sequence[bool]
) -> Scores:
    """The three averages of right cases; the headline is left out where no case counts for it."""
    right, shown = _right(context, rows), group_numbers([row["image_path"] for row in rows])
    groups, counted = group_numbers(labels), np.array(kept, dtype=bool)
    values = {f"{name}/micro_accuracy": right, f"{name}/macro_accuracy_all": right}
    scores = Scores(values, {f"{name}/macro_accuracy_all": groups}, pictures=dict.fromkeys(values, shown))
    if counted.any():
        macro, cut = f"{name}/macro_accuracy", [column[counted] for column in (groups, shown)]
        scores.update(Scores({macro: right[counted]}, {macro: cut[0]}, pictures={macro: cut[1]}))
    return scores


def _right(context: PublishedContext, rows: list[dict[str, Any]]) -> Reals:
    """1 for every case whose box is closer to the true caption `[cases]`."""
    folder = context.folder / "images"
    images = context.images(
        [picture_file(folder / row["image_path"], tuple(row[side] for side in _BOX)) for row in rows]
    )
    true, false = context.columns(rows, *_CAPTIONS)
    return strictly_greater(row_cosine(images, true), row_cosine(images, false))


def tested(path: str, context: PublishedContext) -> Tested:
    """True and false captions, and the images, which are Visual Genome's."""
    rows = read_rows(context, path, _COLUMNS)
    texts = [row[column] for row in rows for column in _CAPTIONS]
    return Tested(texts, [context.folder / "images" / row["image_path"] for row in rows], names="VG_100K")


_SOURCE = "github.com/mertyg/vision-language-models-are-bows"
_IMAGES = Need(
    "images", "Visual Genome images of GQA", "1 GB", "CC BY 4.0 and Flickr terms", f"{_SOURCE}, vgr_vga_images.zip"
)


def _benchmark(
    name: str, file: str, cases: int, size: str, over: str, score: Callable[[str, PublishedContext], Scores]
) -> Benchmark[PublishedContext]:
    return Benchmark(
        name=name,
        version=2,
        protocol=f"released notebook: box crop, macro over {over} and micro beside it",
        citation="When and why vision-language models behave like bags-of-words (arXiv 2210.01936)",
        folder="aro",
        needs=(Need(file, f"{cases:,} cases", size, "MIT", _SOURCE), _IMAGES),
        metrics=metrics("a tie is a failure", "macro_accuracy", "macro_accuracy_all", "micro_accuracy"),
        score=partial(score, file),
        tested=partial(tested, file),
    )


BENCHMARKS = (
    _benchmark(
        RELATION,
        "visual_genome_relation.json",
        RELATIONS,
        "10 MB",
        "its relations; over all relations",
        score_relations,
    ),
    _benchmark(
        ATTRIBUTION,
        "visual_genome_attribution.json",
        ATTRIBUTIONS,
        "15 MB",
        "pairs with 25 cases; over all pairs",
        score_attributions,
    ),
)
