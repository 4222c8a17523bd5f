"""Do two captions with the same meaning beat one with two things swapped? (SugarCrepe++: Dumpala et al. 2024)

P1 is a swap's true caption, P2 the paraphrase of the same image, N the swap's false caption, which has the words of P1.
`itt` compares both with N at the image, `tot` only compares the texts. Values are also reported per kind of swap.
"""

from __future__ import annotations

from components.core.tables.records import SWAPS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext
from components.evaluation.scoring.protocols.choices import image_triplets, text_triplets

NAME = "triplets"
FILE = "swaps.parquet"


def score(context: ProjectContext) -> Scores:
    """ITT and its two halves, and TOT, over all swaps and per kind."""
    table = context.read(SWAPS, FILE)
    image_ids = table["image_id"].to_pylist()
    gold = context.rows(image_ids, FILE)
    images = context.image_features[gold]
    first, negative = context.columns(table, "true_caption", "false_caption")
    second = context.texts_of("paraphrase", image_ids, FILE)
    columns = image_triplets(images, first, second, negative) | {"tot": text_triplets(first, second, negative)}
    return grouped(NAME, columns, gold, {"kind": table["kind"].to_pylist()})


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE, QUERIES_FILE],
    metrics("a tie is a failure", "itt", "i_p1_n", "i_p2_n", "tot"),
    key_metrics=(f"{NAME}/itt",),
)
