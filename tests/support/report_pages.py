"""Results of made-up encoders on disk, enough for the stage `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from components.core.compute.metrics import average_overlap
from components.core.settings import Settings
from components.core.tables.files import write_json
from components.core.tables.records import CAPTION_QUERIES, LABELS, PAIRS, PARAPHRASE_QUERIES, SWAPS
from components.evaluation.benchmarks.project.rankings import PARAPHRASE_TOP, QUERY_TOP
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.intervals import mean_interval
from components.evaluation.scoring.results import Folders, Report, Result, write_results
from tests.support.evaluation_fixtures import stub_sidecar, write_rows
from tests.support.shard_making import picture

IMAGES, QUERIES, DEPTH = 60, 80, 10
PRIMARY = "paraphrased_retrieval/ao_at_10"
_SHARES = (
    "paraphrased_retrieval/js_at_10", "retrieval/t2i_recall_at_5", "retrieval/t2i_recall_at_10",
    "retrieval_alt_text/t2i_recall_at_10", "zero_shot/top1", "zero_shot/ensemble/top1", "swaps/relation_accuracy",
    "swaps/attribute_accuracy", "paraphrased_retrieval/tier_common/ao_at_10",
    "paraphrased_retrieval/tier_unseen/ao_at_10",
)  # fmt: skip


def write_project(root: Path, encoders: list[str]) -> Folders:
    """Tables, images and one set of results per encoder; later encoders are more robust and classify worse."""
    folders = Folders(root / "models", root / "pairs", root / "embeddings", root / "tables", root / "reports")
    _write_tables(folders)
    for number, encoder in enumerate(encoders):
        _write_results(folders, encoder, number)
    return folders


def make_settings(settings: Settings, encoders: list[str]) -> Settings:
    content: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    content["compare_encoders"] = encoders
    benchmarks = ["paraphrased_retrieval", "retrieval", "zero_shot", "swaps"]
    content["evaluate"] |= {"benchmarks": benchmarks, "top_k": [5, 10], "bootstrap": 50}
    content["compare"] |= {"gallery_queries": 4, "gallery_top": 5}
    content["promote"]["metric"] = PRIMARY
    return Settings.model_validate(content)


def _write_tables(folders: Folders) -> None:
    ids = [f"image_{row}" for row in range(IMAGES)]
    captions = [f"a <b>thing</b> number {row} of many that stand in a row" for row in range(IMAGES)]
    pictures = [picture(row, size=(128, 128)) for row in range(IMAGES)]
    columns = {"id": ids, "image_id": ids, "image": pictures, "caption": captions, "facts": [None] * IMAGES}
    PAIRS.write(folders.test_pairs, columns)
    queries = []
    for number in range(QUERIES):
        query, tier = f"a red thing, the {number}th, left of a smaller one", "common" if number % 2 else "unseen"
        paraphrase = f"to the right of object {number} stands a lesser one"
        queries.append((ids[number % IMAGES], query, paraphrase, tier, "scene"))
    write_rows(PARAPHRASE_QUERIES, folders.evaluation / "paraphrase_queries.parquet", queries)
    write_rows(CAPTION_QUERIES, folders.evaluation / "caption_queries.parquet", [("image_0", "a", "plain")])
    write_rows(LABELS, folders.evaluation / "labels.parquet", [("image_0", "cat")])
    write_rows(SWAPS, folders.evaluation / "swaps.parquet", [("image_0", "a", "b", "relation", "g")])


def _write_results(folders: Folders, encoder: str, number: int) -> None:
    generator = np.random.default_rng(number)
    query = np.empty((QUERIES, DEPTH), dtype=np.int64)
    for row, gold in enumerate(np.arange(QUERIES) % IMAGES):
        query[row] = [gold, *(image for image in generator.permutation(IMAGES) if image != gold)][:DEPTH]
    paraphrase = query.copy()
    for row, ranks in enumerate(paraphrase):
        # Some queries keep their list whole, the others less of it the earlier the encoder comes.
        kept = DEPTH if row % 5 == 0 else min(DEPTH, 2 + number % 9)
        ranks[kept:] = [image for image in generator.permutation(IMAGES) if image not in query[row]][: DEPTH - kept]
    values = {PRIMARY: average_overlap(query, paraphrase, DEPTH)}
    for place, name in enumerate(_SHARES):
        share = np.clip(0.35 + 0.05 * place + (0.02 if place < 3 else -0.015) * number, 0.05, 0.95)
        values[name] = (generator.random(200) < share).astype(np.float64)
    results = {}
    for name, found in values.items():
        mean = mean_interval(found)
        results[name] = Result(value=mean.value, ci95=(mean.low, mean.high), higher_is_better=True)
    protocol = "paraphrased_retrieval=1 retrieval=1 zero_shot=1 swaps=1"
    sha256 = f"{number:064d}"
    report = Report(encoder=encoder, protocol=protocol, data_hash="d" * 64, encoder_sha256=sha256, metrics=results)
    rankings = {QUERY_TOP: query, PARAPHRASE_TOP: paraphrase}
    write_results(report, Scores(values, rankings=rankings), folders.metrics, folders.per_query)
    sidecar = stub_sidecar(encoder, weights_sha256=sha256, data_hashes={"data/pairs": "e" * 64}, settings={"lr": 0.1})
    write_json(folders.models / encoder / "encoder.json", sidecar.model_dump())
