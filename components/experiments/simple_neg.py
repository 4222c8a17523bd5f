"""SimpleNeg: does a picture that a query with "no" finds lack the excluded, by a judge? (arXiv 2603.20554)

Sammani et al. 2026, "When negation is a geometry problem in vision-language models"; rules are those of the released
code (github.com/fawazsammani/negation-steering, steer.py). Each query finds pictures among 25,000. A judge, Qwen3-VL
there, first answers whether a picture shows the rest of the query, and if so whether it shows the excluded; "yes" and
then "no" is right, any other answer is wrong. For the option `judge` see parts/judge.py.

`accuracy_at_k` is the share of right pictures among the first k, `context_at_k` the share that show the rest. The code
keeps five answers for each query; how the paper averages them could not be found, so the mean is this project's choice,
and only depth 1 is sure to be comparable. There is no chance level: a random picture rarely shows the rest of a query.
N-COCO, the paper's second set, is not among its published files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.benchmarks.scoring.benchmark import Benchmark, Scores, metrics
from components.benchmarks.scoring.encoding.published_context import PublishedContext
from components.captions.prompting.request import PICTURE, PromptPicture
from components.captions.prompting.task import question_alone
from components.core.compute.metrics import Reals, top_k
from components.core.system.errors import InputError
from components.experiments.parts.judge import OPTION, JudgeQuestion, judged
from components.test_sets.readers import simple_neg as reader

DEPTHS = (1, 5)
_PROMPT = f"{PICTURE}{{}}\nAnswer the question with a yes or no."
"""The released one."""


def score(context: PublishedContext) -> Scores:
    """Share of the first pictures that show the rest of the query, and of those that also lack the excluded."""
    rows, names = reader.read_queries(context), reader.gallery_names(context)
    if len(names) < max(DEPTHS):
        raise InputError(f"{context.folder / reader.IMAGES} has fewer than {max(DEPTHS)} images: fetch COCO's val2014")
    images = context.image_files(reader.IMAGES, names)
    found = top_k(context.texts([row["query"] for row in rows]), images, max(DEPTHS))
    pairs = [(row, names[item]) for row, items in zip(rows, found, strict=True) for item in items]
    fits = _answered(context, [(row["rest"], name) for row, name in pairs], "yes")
    shown, right = np.flatnonzero(fits), np.zeros(len(pairs))
    right[shown] = _answered(context, [(pairs[n][0]["excluded"], pairs[n][1]) for n in shown], "no")
    columns = {"accuracy": right.reshape(found.shape), "context": fits.reshape(found.shape)}
    return Scores(
        {f"{reader.NAME}/{kind}_at_{k}": columns[kind][:, :k].mean(axis=1) for kind in columns for k in DEPTHS}
    )


def _answered(context: PublishedContext, asked: Sequence[tuple[str, str]], wanted: str) -> Reals:
    """1 where the judge answers the question about the picture of that name with the wanted word, `[questions]`."""
    answers = np.zeros(len(asked))
    if asked:
        folder = context.folder / reader.IMAGES
        pictures = {name: PromptPicture((folder / name).read_bytes(), "image/jpeg") for _, name in asked}
        questions = [JudgeQuestion(question_alone(_PROMPT.format(text)), (pictures[name],)) for text, name in asked]
        values, kept = judged(
            context, reader.NAME, questions, lambda answer: float(answer.lower().replace(".", "").strip() == wanted)
        )
        answers[kept] = values
    return answers


BENCHMARKS = (
    Benchmark(
        name=reader.NAME,
        version=1,
        protocol="released code: a judge's yes to the rest of the query and no to the excluded, 25,000 pictures",
        citation="When negation is a geometry problem in vision-language models (arXiv 2603.20554)",
        folder=reader.NAME,
        needs=reader.FILES,
        metrics=metrics("the earlier picture by name first", "accuracy_at_k", "context_at_k"),
        score=score,
        options=OPTION,
    ),
)
