"""Do two captions that say the same beat one with two things exchanged? (SugarCrepe++: Dumpala et al. 2024, section 4)

P1 is a swap's true caption, P2 the paraphrase of the same image, N the swap's false caption, which has the words of P1.
`itt` compares both with N at the image, `tot` compares the texts alone. Values are also given per kind of swap.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.files.texts_of_images import QUERIES_FILE, texts_of_images
from components.benchmarks.protocols.choices import image_triplets, text_triplets
from components.benchmarks.scores import Columns, Metric, Scores
from components.core.records import SWAPS

NAME = "triplets"
FILE = "swaps.parquet"
_LOST = "a tie is a failure"


def score(context: EmbeddedContext) -> Scores:
    """ITT and its two halves, and TOT, over all swaps and per kind."""
    table = context.read(SWAPS, FILE)
    image_ids = table["image_id"].to_pylist()
    gold = context.rows(image_ids, FILE)
    images = context.image_features[gold]
    first, negative = (context.texts(table[column].to_pylist()) for column in ("true_caption", "false_caption"))
    second = texts_of_images(context, "paraphrase", image_ids, FILE)
    found = image_triplets(images, first, second, negative) | {"tot": text_triplets(first, second, negative)}
    kinds = np.array(table["kind"].to_pylist())

    def named(columns: dict[str, Columns]) -> dict[str, Columns]:
        named = {f"{NAME}/{name}": column for name, column in columns.items()}
        for kind in dict.fromkeys(kinds.tolist()):
            named |= {f"{NAME}/kind_{kind}/{name}": column[kinds == kind] for name, column in columns.items()}
        return named

    return Scores(named(found), pictures=named(dict.fromkeys(found, gold)))


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE), Need(QUERIES_FILE)),
    metrics=(
        Metric("itt", higher_is_better=True, ties=_LOST),
        Metric("i_p1_n", higher_is_better=True, ties=_LOST),
        Metric("i_p2_n", higher_is_better=True, ties=_LOST),
        Metric("tot", higher_is_better=True, ties=_LOST),
    ),
    score=score,
    key_metrics=(f"{NAME}/itt",),
)
