"""SugarCrepe: an image must be closer to its caption than to a fluent wrong one (Hsieh et al. 2023).

Format and rules are those of the released code (github.com/RAIVNLab/sugar-crepe): seven files, each an object whose
keys are row numbers with gaps, and a strict inequality for each row. The paper reports every subset and discusses them
by type; the mean of a type's subsets, each counted once, is what later papers quote, and so it stands beside them as
`replace`, `swap` and `add`. There is no official average of all. (CLIP_benchmark counts ties as right instead.)
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.rows import read_rows
from components.benchmarks.protocols.row_pairs import group_numbers, row_cosine
from components.benchmarks.scores import Metric, Scores
from components.core.metrics import Indices, Reals, strictly_greater

NAME = "sugar_crepe"
TYPES = {
    "replace": {"replace_obj": 1652, "replace_att": 788, "replace_rel": 1406},
    "swap": {"swap_obj": 245, "swap_att": 666},
    "add": {"add_obj": 2062, "add_att": 692},
}
"""Type -> its subsets -> published number of rows."""
_COLUMNS = {"filename": str, "caption": str, "negative_caption": str}


def score(context: PublishedContext) -> Scores:
    """Accuracy of each subset, and of each type as the mean of its subsets."""
    values: dict[str, Reals] = {}
    strata: dict[str, Indices] = {}
    pictures: dict[str, Indices] = {}
    for kind, subsets in TYPES.items():
        found, files = {}, []
        for subset, count in subsets.items():
            found[subset], shown = _right(context, subset, count)
            pictures[f"{NAME}/{subset}/accuracy"] = group_numbers(shown)
            files += shown
        values |= {f"{NAME}/{subset}/accuracy": right for subset, right in found.items()}
        name = f"{NAME}/{kind}/accuracy"
        values[name] = np.concatenate(list(found.values()))
        strata[name] = np.repeat(np.arange(len(found)), [len(right) for right in found.values()])
        pictures[name] = group_numbers(files)
    return Scores(values, strata, pictures=pictures)


def _right(context: PublishedContext, subset: str, count: int) -> tuple[Reals, list[str]]:
    """1 for every row whose image is closer to the caption than to the negative one `[rows]`, and the images' files."""
    path = f"{subset}.json"
    rows = read_rows(context, path, _COLUMNS)
    context.expect(path, len(rows), count)
    images = context.images([picture_file(context.folder / "images" / row["filename"]) for row in rows])
    caption, negative = (context.texts([row[column] for row in rows]) for column in ("caption", "negative_caption"))
    right = strictly_greater(row_cosine(images, caption), row_cosine(images, negative))
    return right, [row["filename"] for row in rows]


def tested(context: PublishedContext) -> Tested:
    """True and false captions of all subsets, and their images, which are COCO's."""
    rows = [row for subsets in TYPES.values() for one in subsets for row in read_rows(context, f"{one}.json", _COLUMNS)]
    texts = [row[column] for row in rows for column in ("caption", "negative_caption")]
    return Tested(texts, [context.folder / "images" / row["filename"] for row in rows], names="val2017")


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=2,
        protocol="released code: strict inequality, each subset by itself; types are means of their subsets",
        citation="SugarCrepe (arXiv 2306.14610)",
        folder="sugar_crepe",
        needs=(
            *(
                Need(f"{subset}.json", f"{count:,} rows", "under 1 MB", "MIT", "github.com/RAIVNLab/sugar-crepe, data/")
                for subsets in TYPES.values()
                for subset, count in subsets.items()
            ),
            Need(
                "images",
                "COCO val2017, 5,000 images",
                "1 GB",
                "Flickr terms, annotations CC BY 4.0",
                "cocodataset.org, val2017.zip",
            ),
        ),
        metrics=(Metric("accuracy", higher_is_better=True, ties="a tie is a failure"),),
        score=score,
        tested=tested,
    ),
)
