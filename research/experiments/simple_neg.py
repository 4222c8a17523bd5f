"""SimpleNeg: does a picture that a query with "no" finds lack the excluded, by a judge? (arXiv 2603.20554)

Rules are those of the released code (github.com/fawazsammani/negation-steering, steer.py). Each row of `simpleneg.json`
is [query, question about the excluded, question about the rest]; the first 25,000 images of COCO val2014 by name are
searched. A judge, Qwen3-VL there, answers whether a picture shows the rest of the query, and if so whether it shows the
excluded; "yes" and then "no" is right, other answers are wrong. For the option `judge` see parts/judge.py.

`accuracy_at_k` is the share of right pictures among the first k, `context_at_k` the share that show the rest. The code
keeps five answers for each query; the paper's average of them could not be found, so only depth 1 is comparable. It
has no chance level: a random picture rarely shows the rest of a query. The number of rows is unpublished and therefore
not checked. N-COCO's files are not published with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.captions.prompting.request import PICTURE, PromptPicture
from components.captions.prompting.task import question_alone
from components.core.compute.metrics import Reals, top_k
from components.core.tables.folders import RequiredFile
from components.data.test_sets.readers.captions import COCO
from components.data.test_sets.readers.coco_p import image_files
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.judge import OPTION, JudgeQuestion, judged

NAME, FILE, IMAGES = "simple_neg", "simpleneg.json", "val2014"
PUBLISHED, GALLERY, DEPTHS = 40_504, 25_000, (1, 5)
_COLUMNS = ("query", "excluded", "rest")
_PROMPT = f"{PICTURE}{{}}\nAnswer the question with a yes or no."
"""The released one."""


def score(context: PublishedContext) -> Scores:
    """Share of the first pictures that show the rest of the query, and of those that also lack the excluded."""
    rows = _queries(context)
    names = [path.name for path in image_files(context.folder / IMAGES)]
    context.expect(f"{IMAGES}: images", len(names), PUBLISHED)
    images = context.image_files(IMAGES, names[:GALLERY])
    found = top_k(context.texts([row["query"] for row in rows]), images, max(DEPTHS))
    pairs = [(row, names[item]) for row, items in zip(rows, found, strict=True) for item in items]
    fits = _answered(context, [(row["rest"], name) for row, name in pairs], "yes")
    shown, right = np.flatnonzero(fits), np.zeros(len(pairs))
    right[shown] = _answered(context, [(pairs[n][0]["excluded"], pairs[n][1]) for n in shown], "no")
    columns = {"accuracy": right.reshape(found.shape), "context": fits.reshape(found.shape)}
    kinds = ((kind, column, k) for kind, column in columns.items() for k in DEPTHS)
    return Scores({f"{NAME}/{kind}_at_{k}": column[:, :k].mean(axis=1) for kind, column, k in kinds})


def _queries(context: PublishedContext) -> list[dict[str, str]]:
    content = context.read_json(FILE)
    listed = content if isinstance(content, list) else [content]
    three = (row if isinstance(row, list) and len(row) == len(_COLUMNS) else [None] * len(_COLUMNS) for row in listed)
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in three]
    return context.complete_rows(FILE, rows, dict.fromkeys(_COLUMNS, str))


def _answered(context: PublishedContext, asked: Sequence[tuple[str, str]], wanted: str) -> Reals:
    """1 where the judge answers the question about the picture of that name with the wanted word, `[questions]`."""
    answers = np.zeros(len(asked))
    if asked:
        folder = context.folder / IMAGES
        pictures = {name: PromptPicture((folder / name).read_bytes(), "image/jpeg") for _, name in asked}
        questions = [JudgeQuestion(question_alone(_PROMPT.format(text)), (pictures[name],)) for text, name in asked]
        values, kept = judged(
            context, NAME, questions, lambda answer: float(answer.lower().replace(".", "").strip() == wanted)
        )
        answers[kept] = values
    return answers


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=1,
        protocol="released code: a judge's yes to the rest of the query and no to the excluded, 25,000 pictures",
        citation="When negation is a geometry problem in vision-language models (arXiv 2603.20554)",
        folder=COCO.folder,
        needs=(
            RequiredFile(FILE, "queries", "110 kB", "not stated", "github.com/fawazsammani/negation-steering, data/"),
            RequiredFile(IMAGES, f"{PUBLISHED:,} images", "6 GB", "Flickr terms", "cocodataset.org, val2014.zip"),
        ),
        metrics=metrics("the earlier picture by name first", "accuracy_at_k", "context_at_k"),
        score=score,
        options=OPTION,
    ),
)
