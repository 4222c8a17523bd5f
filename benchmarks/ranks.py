"""How much memory does each rank of a training add, with millions of rows?

Made-up pairs and paraphrases, embeddings at random and a tiny text tower: memory is that of the data. Ranks run on this
machine's processor. The proportional set size (PSS) counts a page that several processes share in equal parts.

    python -m benchmarks.ranks --rows 5000000 --ranks 8
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import pyarrow as pa
import typer
import yaml

from benchmarks.scale_inputs import Size, texts, write_project
from benchmarks.scale_process import memory_of, run
from components.core.system.errors import run_command
from components.core.system.progress import bar
from components.core.tables import folders
from components.core.tables.arrays import written_array
from components.core.tables.files import file_hash
from components.core.tables.record_files import write_record
from components.core.tables.records import PAIRS, PARAPHRASES
from components.core.tables.text_column import TextColumn
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.tokens import Tokenizer, Tokens
from components.encoders.embeddings import MANIFEST, EmbeddedSplit, Manifest
from components.training.rows.sources import cached_tokens

REPO = Path(__file__).parents[1]
BATCH, STEPS, VALIDATION_PAIRS = 512, 5, 1000
_BLOCK = 50_000
_DIM = 64
_COLUMNS = ("caption", "paraphrase_1", "paraphrase_2")
_ARCHITECTURE = {
    "embed_dim": _DIM,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "head_width": 32, "patch_size": 16},
    "text_cfg": {"context_length": 48, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}
_STATE = Path("state/train")
_TRAIN = "components.training.train"


def write_inputs(folder: Path, rows: int) -> None:
    """A project whose pairs are embedded and whose paraphrases are validated and tokenised.

    Texts and features are the same every 50,000 rows.
    """
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    write_project(folder, Size(rows, images=1, queries=1, batch=BATCH, steps=STEPS))
    encoder = Encoder.create("base", "ranks", _ARCHITECTURE, "random")
    encoder.save(folder / folders.BASE)
    captions, embeddings = dict(zip(_COLUMNS, texts(_BLOCK, 0), strict=True)), folder / folders.EMBEDDINGS
    features, norms = unit_rows(np.random.default_rng(0).standard_normal((_BLOCK, _DIM), np.float32))
    embeddings.mkdir(parents=True, exist_ok=True)
    splits = {}
    for split, count in {"val": VALIDATION_PAIRS, "train": rows}.items():
        pairs, paraphrases = folder / folders.PAIRS / f"{split}.parquet", folder / folders.VALIDATED / "paraclip"
        with (
            PAIRS.writer(pairs) as add_pairs,
            PARAPHRASES.writer(paraphrases / "paraphrases.parquet") as add_paraphrases,
            written_array(embeddings / f"{split}.npy", np.float32, (count, _DIM)) as add_features,
            written_array(embeddings / f"{split}.norms.npy", np.float32, (count,)) as add_norms,
            bar(split, count, "row") as progress,
        ):
            for start in range(0, count, _BLOCK):
                many = min(_BLOCK, count - start)
                names = pa.array([f"{split}-{row:012d}" for row in range(start, start + many)])
                columns = {name: column[:many] for name, column in captions.items()} | {"id": names}
                add_pairs(_table(PAIRS.schema, columns | {"image_id": names}))
                add_paraphrases(_table(PARAPHRASES.schema, columns | {"sample": pa.array([0] * many)}))
                add_features(features[:many])
                add_norms(norms[:many])
                progress.update(many)
        splits[split] = EmbeddedSplit(pairs_sha256=file_hash(pairs), rows=count)
    tower = encoder.sidecar.image_tower_sha256
    write_record(embeddings / MANIFEST, Manifest(image_tower_sha256=tower, embed_dim=_DIM, splits=splits))
    _write_tokens(captions, rows, encoder.tokenizer, folder / _STATE / "tokens")


def _write_tokens(captions: dict[str, pa.Array], rows: int, tokenizer: Tokenizer, folder: Path) -> None:
    for column in captions.values():
        distinct = dict(zip(column.to_pylist(), tokenizer(column.to_pylist()), strict=True))
        every = TextColumn(pa.chunked_array([column] * -(-rows // _BLOCK)).slice(0, rows))

        def tokenise(many: Sequence[str], known: dict[str, Any] = distinct) -> Tokens:
            return np.stack([known[text] for text in many])

        cached_tokens(every, tokenise, tokenizer.context_length, tokenizer.identity, folder)


def _table(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.Table:
    rows = len(columns["id"])
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)).cast(field.type) for field in schema], schema)


def measure(folder: Path, rows: int, ranks: int) -> dict[str, Any]:
    """Memory in GB of the launcher and all ranks at most, and of each rank after five steps."""
    if not (folder / folders.EMBEDDINGS / MANIFEST).is_file():
        write_inputs(folder, rows)
    params = yaml.safe_load((folder / "params.yaml").read_text("utf-8"))
    params["device"] = "cpu"
    params["train"] |= {"processes": ranks, "precision": "fp32", "checkpoint_dir": str(_STATE)}
    params["train"] |= {"validation_images": 0, "validate_every": None}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), "utf-8")
    after: list[tuple[int, int]] = []

    def trained() -> bool:
        if not any((folder / _STATE).glob("paraclip-*/step-*")):
            return False
        after[:] = [memory_of(rank) for rank in _ranks()]
        return True

    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    log = folder / f"{ranks}.log"
    taken = run([sys.executable, "-m", _TRAIN, "--method", "paraclip"], folder, environment, log, trained)
    found = {"rows": rows, "ranks": ranks, "seconds": round(taken.seconds)}
    found |= {"peak_gb": round(taken.peak_memory_gb, 2), "peak_own_gb": round(taken.peak_own_memory_gb, 2)}
    for checkpoints in (folder / _STATE).glob("paraclip-*"):
        shutil.rmtree(checkpoints)
    return found | {
        "rank_gb": [round(whole / 1e9, 2) for whole, _ in after],
        "rank_own_gb": [round(own / 1e9, 2) for _, own in after],
    }


def _ranks() -> list[int]:
    """The processes below this one that train; the launcher has another module in its command."""
    below = psutil.Process().children(recursive=True)
    return [
        one.pid
        for one in below
        if _TRAIN in (command := one.cmdline()) and "components.core.compute.distributed" not in command
    ]


def main(
    rows: Annotated[int, typer.Option(help="Pairs to train on.")] = 5_000_000,
    ranks: Annotated[
        list[int] | None, typer.Option(help="Numbers of ranks, each in a run; 1, 2 and 8 by default.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the inputs here for another run.")] = None,
) -> None:
    """Measure the memory of a training's ranks; prints one JSON object per number of ranks.

    Example: python -m benchmarks.ranks --rows 1000000 --ranks 1 --ranks 4
    """

    def command() -> None:
        with tempfile.TemporaryDirectory(prefix="ranks-benchmark-") as temporary:
            for number in ranks or (1, 2, 8):
                print(json.dumps(measure(folder or Path(temporary), rows, number)), flush=True)

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
