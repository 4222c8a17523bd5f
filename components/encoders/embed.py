"""Stage `embed`: image embeddings of all splits by the frozen image tower, once.

python -m components.encoders.embed
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from components.core import folders
from components.core.checking import load_checked
from components.core.files import atomic_folder, file_hash
from components.core.progress import bar
from components.core.project import run_in_project, start
from components.core.record_files import write_record
from components.core.records import PAIRS, SPLITS
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.embeddings import MANIFEST, Embedded, Manifest, require_finite

_BATCHES = 4
"""Batches whose images are read together."""


def run(
    settings: Settings,
    output: Path = folders.EMBEDDINGS,
    pairs_folder: Path = folders.PAIRS,
    base: Path = folders.BASE,
) -> None:
    """Write each split's image features and a manifest of what they were made from.

    `<split>.npy` has unit rows `[pairs, dim]`, `<split>.norms.npy` their lengths before `[pairs]`, both float32.

    Raises:
        InputError: an image cannot be decoded, or its feature is not finite; the message gives its pair id.
    """
    encoder = Encoder.load(base)
    splits: dict[str, Embedded] = {}
    with atomic_folder(output) as folder:
        for split in SPLITS:
            path = pairs_folder / f"{split}.parquet"
            rows = _embed(encoder, path, folder, split, settings.embed.batch_size)
            splits[split] = Embedded(pairs_sha256=file_hash(path), rows=rows)
        tower, dim = encoder.sidecar.image_tower_sha256, encoder.sidecar.embed_dim
        write_record(folder / MANIFEST, Manifest(image_tower_sha256=tower, embed_dim=dim, splits=splits))


def _embed(encoder: Encoder, pairs: Path, folder: Path, split: str, batch_size: int) -> int:
    """Write one split's features and lengths; memory holds the images of some batches."""
    total = PAIRS.count(pairs)
    features = open_memmap(folder / f"{split}.npy", "w+", np.float32, (total, encoder.sidecar.embed_dim))
    norms = open_memmap(folder / f"{split}.norms.npy", "w+", np.float32, (total,))
    done = 0
    with bar(f"embed {split}", total, "image") as progress:
        for block in PAIRS.blocks(pairs, ["id", "image"], rows=_BATCHES * batch_size):
            raw = _features(encoder, block["image"].to_pylist(), block["id"].to_pylist(), batch_size)
            rows = slice(done, done + len(raw))
            features[rows], norms[rows] = unit_rows(raw)
            done += len(raw)
            progress.update(len(raw))
    features.flush()
    norms.flush()
    return done


def _features(encoder: Encoder, images: list[bytes], ids: list[str], batch_size: int) -> Vectors:
    """Raw features `[pairs, dim]`; an image that several pairs show, each with another caption, is embedded once."""
    names = dict(zip(reversed(images), reversed(ids), strict=True))
    distinct = list(dict.fromkeys(images))
    shown = [names[image] for image in distinct]
    raw = encoder.image_features(distinct, batch_size, names=shown)
    require_finite(raw, encoder.sidecar.name, "picture", shown)
    row_of = {image: row for row, image in enumerate(distinct)}
    return raw[[row_of[image] for image in images]]


def main() -> None:
    """Embed the images of all splits by the frozen image tower.

    Example: python -m components.encoders.embed
    """
    run_in_project(lambda: run(load_checked()))


if __name__ == "__main__":
    start(main)
