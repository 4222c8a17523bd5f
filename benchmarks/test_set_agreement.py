"""Do several sets of paraphrase queries put encoders into the same order? AO@10 on each set, and agreement by pairs.

Run it in a project whose `embed` has run. A set is a folder with `paraphrase_queries.parquet`: people's captions in
`data/evaluation`, or `data/test_set` as a model wrote it, moved away before another model writes the next one.

    python -m benchmarks.test_set_agreement models/base models/paraclip --tables data/evaluation --tables data/written
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from components.core.settings import load_settings
from components.core.system.errors import run_command
from components.core.tables.folders import EMBEDDINGS, PAIRS
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.evaluate import image_features

METRIC = "paraphrased_retrieval/ao_at_10"
Values = npt.NDArray[np.float64]
_NORMAL = 1.96


def agreement(first: dict[str, Values], second: dict[str, Values]) -> dict[str, int]:
    """How many pairs of encoders two sets order alike, of all pairs and of those whose order is clear on both sets.

    Args:
        first, second: encoder -> a value per query `[queries]`. An order is clear if the 95% interval of the mean
            paired difference excludes 0.
    """
    found = {"pairs": 0, "alike": 0, "clear": 0, "clear_alike": 0}
    for one, other in combinations(first, 2):
        gaps = [values[one] - values[other] for values in (first, second)]
        alike = bool(np.sign(gaps[0].mean()) == np.sign(gaps[1].mean()))
        clear = all(abs(gap.mean()) > _NORMAL * gap.std() / np.sqrt(len(gap)) for gap in gaps)
        found["pairs"] += 1
        found["alike"] += alike
        found["clear"] += clear
        found["clear_alike"] += clear and alike
    return found


def scores(encoder: Path, tables: list[Path]) -> list[Values]:
    """AO@10 of each query of each set `[queries]`."""
    settings, benchmark, loaded = load_settings(), find_benchmark("paraphrased_retrieval"), Encoder.load(encoder)
    ids, features = image_features(loaded, EMBEDDINGS, PAIRS / "test.parquet", settings.embed.batch_size)
    under_test = EncoderUnderTest(encoder.name, loaded, loaded.sidecar.weights_sha256)
    contexts = (ProjectContext(under_test, folder, settings.evaluate.top_k, ids, features) for folder in tables)
    return [np.asarray(benchmark.score(context).values[METRIC], np.float64) for context in contexts]


def _compare(encoders: list[Path], tables: list[Path]) -> None:
    sets: dict[str, dict[str, Values]] = {str(folder): {} for folder in tables}
    shown = Table("encoder", *sets, title="AO@10, times 100")
    for encoder in encoders:
        found = scores(encoder, tables)
        shown.add_row(encoder.name, *(f"{100 * values.mean():.1f}" for values in found))
        for folder, values in zip(sets, found, strict=True):
            sets[folder][str(encoder)] = values
    Console().print(shown)
    together = {f"{one} and {other}": agreement(sets[one], sets[other]) for one, other in combinations(sets, 2)}
    print(json.dumps(together))


def main(
    encoders: Annotated[list[Path], typer.Argument(help="Folders of encoders, two at least.")],
    tables: Annotated[list[Path], typer.Option(help="A folder with paraphrase_queries.parquet; name two or more.")],
) -> None:
    """Compare the orders of encoders on several sets of paraphrase queries.

    Example: python -m benchmarks.test_set_agreement models/base models/mine --tables data/evaluation --tables written
    """
    run_command(lambda: _compare(encoders, tables))


if __name__ == "__main__":
    typer.run(main)
