"""Stage `embed`: image embeddings of all splits by the frozen image tower, once.

python -m components.encoders.embed
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.data.prepare import PAIRS_FOLDER, SPLITS
from components.encoders.base import OUTPUT as BASE_FOLDER
from components.encoders.embeddings import MANIFEST
from components.encoders.encoder import Encoder, unit_rows
from components.errors import run_command
from components.files import atomic_folder, file_hash, write_json
from components.records import PAIRS
from components.settings import Settings, load_settings

OUTPUT = Path("data/embeddings")


def run(settings: Settings, output: Path = OUTPUT, pairs_folder: Path = PAIRS_FOLDER, base: Path = BASE_FOLDER) -> None:
    """Write each split's image features and a manifest of what they were made from.

    `<split>.npy` has unit rows `[pairs, dim]`, `<split>.norms.npy` their lengths before `[pairs]`, both float32.

    Raises:
        InputError: an image cannot be decoded; the message gives its pair id.
    """
    encoder = Encoder.load(base)
    splits = {}
    with atomic_folder(output) as folder:
        for split in SPLITS:
            path = pairs_folder / f"{split}.parquet"
            pairs = PAIRS.read(path, ["id", "image"])
            ids, images = pairs["id"].to_pylist(), pairs["image"].to_pylist()
            raw = encoder.image_features(images, settings.embed.batch_size, f"embed {split}", ids)
            features, norms = unit_rows(raw)
            np.save(folder / f"{split}.npy", features, allow_pickle=False)
            np.save(folder / f"{split}.norms.npy", norms, allow_pickle=False)
            splits[split] = {"pairs_sha256": file_hash(path), "rows": len(features)}
        manifest = {
            "image_tower_sha256": encoder.sidecar.image_tower_sha256,
            "embed_dim": encoder.sidecar.embed_dim,
            "splits": splits,
        }
        write_json(folder / MANIFEST, manifest)


if __name__ == "__main__":
    run_command(lambda: run(load_settings()))
