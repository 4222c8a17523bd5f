"""Reads the image embeddings of stage `embed`, memory-mapped; refuses features that are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.arrays import TextColumn, mapped_array
from components.core.tables.files import file_hash
from components.core.tables.formats import read_record
from components.core.tables.records import PAIRS

MANIFEST = "manifest.json"


class EmbeddedSplit(BaseModel):
    """One split in the manifest: the number of rows, and the hash of the file of pairs."""

    pairs_sha256: str
    rows: int


class Manifest(BaseModel):
    """The inputs of the image embeddings of all splits."""

    image_tower_sha256: str
    embed_dim: int
    splits: dict[str, EmbeddedSplit]


@dataclass(frozen=True)
class ImageEmbeddings:
    """Image features of one split with the ids of their pairs, in the same order.

    Attributes:
        features: unit rows `[images, dim]`.
        norms: lengths `[images]` of the raw features, which are `features` times `norms`.
    """

    ids: TextColumn
    image_ids: TextColumn
    features: npt.NDArray[np.float32]
    image_tower_sha256: str
    norms: npt.NDArray[np.float32]

    @staticmethod
    def open(folder: Path, split: str, pairs_file: Path) -> ImageEmbeddings:
        """Map the features of `split` into memory."""
        fix = "delete its folder and run `dvc repro embed`"
        path, norms_path = folder / f"{split}.npy", folder / f"{split}.norms.npy"
        for needed in (path, norms_path):
            if not needed.is_file():
                raise InputError(f"{needed} is missing: run `dvc repro embed`")
        manifest = read_record(Manifest, folder / MANIFEST, "run `dvc repro embed`", fix, formats.EMBEDDINGS)
        ids, image_ids = map(TextColumn, PAIRS.read(pairs_file, ["id", "image_id"]).columns)
        made_from = manifest.splits.get(split)
        if made_from is None or made_from.pairs_sha256 != file_hash(pairs_file):
            raise InputError(f"{path} was made from another version of {pairs_file}: run `dvc repro embed`")
        features, norms = mapped_array(path, fix), mapped_array(norms_path, fix)
        if len(ids) != len(features):
            raise InputError(f"{path} has {len(features)} rows, {pairs_file} has {len(ids)}: run `dvc repro embed`")
        return ImageEmbeddings(ids, image_ids, features, manifest.image_tower_sha256, norms)


_ROWS = 1 << 14
"""Rows that are checked at once, so that a memory-mapped file need not fit into memory."""


def non_finite_row(features: npt.NDArray[np.float32]) -> int | None:
    """Number of the first row of `[rows, dim]` that is not finite; None if all are finite."""
    for start in range(0, len(features), _ROWS):
        bad = ~np.isfinite(features[start : start + _ROWS]).all(axis=1)
        if bad.any():
            return start + int(bad.argmax())
    return None


def require_finite(features: npt.NDArray[np.float32], encoder: str, kind: str, names: Sequence[str]) -> None:
    """Refuse features that are not finite.

    Args:
        features: `[rows, dim]`.
        kind: the input of a row, such as "picture".
    """
    row = non_finite_row(features)
    if row is not None:
        raise InputError(
            f"encoder '{encoder}' gives {kind} '{names[row]}' a feature that is not finite (NaN or infinite): its "
            "weights are damaged: train or fetch it again"
        )
