"""Stage `prepare`: image-caption pairs with splits, and the benchmark tables of the test split.

python -m components.data.prepare
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa

from components.data.source import Pair
from components.data.sources import find_source
from components.errors import InputError, run_command
from components.files import atomic_folder
from components.progress import track
from components.records import PAIRS
from components.settings import Settings, load_settings

PAIRS_FOLDER = Path("data/pairs")
EVALUATION_FOLDER = Path("data/evaluation")
SPLITS = ("train", "val", "test")


def run(settings: Settings, pairs_folder: Path = PAIRS_FOLDER, evaluation_folder: Path = EVALUATION_FOLDER) -> None:
    """Write `<split>.parquet` for every split and one Parquet per benchmark table.

    Raises:
        InputError: the source is missing something or holds a row that cannot be used.
    """
    source = find_source(settings.prepare.source)
    splits: dict[str, list[Pair]] = defaultdict(list)
    for pair in track(source.pairs(settings), "prepare", source.total(settings), "pair"):
        splits[pair.split].append(pair)
    seen: dict[str, str] = {}
    for split in SPLITS:
        for pair in splits[split]:
            if seen.setdefault(pair.id, split) != split:
                raise InputError(f"pair {pair.id} ('{pair.caption[:60]}') is in two splits: remove the duplicate")
    with atomic_folder(pairs_folder) as folder:
        for split in SPLITS:
            PAIRS.write(folder / f"{split}.parquet", _table(splits[split]))
    with atomic_folder(evaluation_folder) as folder:
        for name, (table, rows) in source.evaluation(settings, splits["test"]).items():
            table.write(folder / f"{name}.parquet", rows)


def _table(pairs: list[Pair]) -> pa.Table:
    return pa.table(
        {
            "id": [pair.id for pair in pairs],
            "image": [pair.image for pair in pairs],
            "caption": [pair.caption for pair in pairs],
            "facts": [pair.facts for pair in pairs],
        },
        schema=PAIRS.schema,
    )


if __name__ == "__main__":
    run_command(lambda: run(load_settings()))
