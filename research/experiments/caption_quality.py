"""Quality of synthesised differences, by a judge that sees captions and images (PC-CLIP, section 4.6, figure 5).

The data are judged; the encoder has no influence. With `pairs.parquet`, which has the images of the ids in
`differences.parquet`, the judge sees both images and gets the paper's prompt, and metrics are in the group
`with_images`; without it they are in `captions_only`. For the option `judge` see parts/judge.py; the paper's judge is
GPT-4o-mini.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from components.captions.prompting.pictures import SHOWN, pictures_of
from components.captions.prompting.request import disarm
from components.captions.prompting.tasks import find_task
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.core.tables.records import DIFFERENCES
from components.data.test_sets.files import drawn
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.choices import group_numbers
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.judge import OPTION, JudgeQuestion, judged

NAME = "caption_quality"
JUDGED = 300
"""Examples of figure 5."""
GOOD = 0.75
"""The most frequent score of the paper's examples: most differences, with minor inaccuracies."""
TASK = "score_difference"


def score(context: PublishedContext) -> Scores:
    """Mean score from 0 to 1 of 300 random differences, and the share of good ones."""
    table = DIFFERENCES.read(context.folder / "differences.parquet")
    if not table.num_rows:
        raise InputError(f"{context.folder / 'differences.parquet'} has no rows: run `dvc repro` to make it")
    if table.num_rows < JUDGED:
        context.deviates(f"differences.parquet: {table.num_rows} differences, the paper judges {JUDGED}")
    rows = table.take(drawn(table.num_rows, JUDGED, context.seed)).to_pylist()
    shown = (context.folder / "pairs.parquet").exists()
    questions = _with_pictures(context, rows) if shown else [_question(row) for row in rows]
    values, kept = judged(context, TASK, questions, _score)
    group = f"{NAME}/{'with_images' if shown else 'captions_only'}"
    found = {"score": values, "good_share": (values >= GOOD).astype(np.float64)}
    ids = [rows[row][column] for row in kept for column in ("id", "other_id")]
    return grouped(group, found, group_numbers(ids).reshape(-1, 2))


def _with_pictures(context: PublishedContext, rows: Sequence[dict[str, Any]]) -> list[JudgeQuestion]:
    ids = {row[column] for row in rows for column in ("id", "other_id")}
    with pictures_of(ids, context.folder / "pairs.parquet") as picture:
        return [
            JudgeQuestion(_question(row, SHOWN).messages, (picture(row["id"]), picture(row["other_id"])))
            for row in rows
        ]


def _question(row: dict[str, Any], *also: str) -> JudgeQuestion:
    inputs = {name: disarm(row[name]) for name in ("caption", "difference", "other_caption")}
    return JudgeQuestion(find_task(TASK).render(inputs | dict.fromkeys(also, "1"), "published" if also else "own"))


def _score(answer: str) -> float | None:
    parsed = find_task(TASK).parse(answer)
    return None if parsed is None else float(json.loads(parsed)["score"])


BENCHMARKS = (
    Benchmark(
        name=NAME,
        version=3,
        protocol="PC-CLIP, figure 5: a judge's score of 300 drawn differences, by prompt task score_difference",
        citation="PC-CLIP (arXiv 2409.09721), section 4.6 and appendix B.3",
        folder="caption_quality",
        needs=(
            RequiredFile("differences.parquet", "a table `differences`", "1 MB", "yours", "prompt task difference"),
            RequiredFile(
                "pairs.parquet", "a table `pairs` with the images", "100 MB", "yours", "stage prepare", optional=True
            ),
        ),
        metrics=(
            *metrics("none: a mean of scores", "score"),
            *metrics(f"a score of exactly {GOOD} is good", "good_share"),
        ),
        score=score,
        text_only=True,
        options=OPTION,
    ),
)
