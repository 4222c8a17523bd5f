"""Image embeddings that a user gives: read by row, and checked to be of the base."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.embedding_files import captions_of, folder_of, name_column, read_embeddings
from components.core.pictures.folder import read_picture
from components.core.system.errors import InputError
from components.core.system.user_files import is_file
from components.core.tables.records import PAIRS, SPLITS
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows

LEAST_COSINE = 0.99
"""Smallest cosine of pictures that are embedded again; libraries decode and resize with other arithmetic."""
_FOREIGN = 0.1
"""Share of pictures that may have a smaller cosine: a file was replaced, or another library turns it."""
_UNRELATED = 0.2
"""Share of captions that may find their vector in the worse half, where half of the vectors of another model are."""
_SAMPLE, _FEWEST = 1000, 100
"""Most rows that are compared, and fewest whose captions say something."""
_PICTURES = 64
_DEPTH, _CHANCES = 10, 3
"""Captions must find their own vector among the first `_DEPTH` so many times as often as by chance."""


def given_vectors(rows: pa.Table, dim: int) -> Vectors:
    """The user's embeddings of the rows, `[rows, dim]`; consecutive rows of a file are read together."""
    features = np.empty((rows.num_rows, dim), np.float32)
    files, positions = rows["file"].to_pylist(), rows["position"].to_numpy()
    start = 0
    for file, own in groupby(files):
        stop = start + len(list(own))
        first, last = int(positions[start:stop].min()), int(positions[start:stop].max())
        given = read_embeddings(Path(file), first, last - first + 1)
        if given.shape[1] != dim:
            raise InputError(
                f"{file} has embeddings of {given.shape[1]} numbers, those of the base have {dim}: set base to the "
                "model of these embeddings"
            )
        features[start:stop] = given[positions[start:stop] - first]
        start = stop
    return features


def check_given(encoder: Encoder, pairs: Path) -> None:
    """Embed a sample again, pictures where their files are there, otherwise captions, and print how well they fit.

    Nothing is compared if the pairs have pictures of their own or too few rows, or the base has no text tower yet.

    Args:
        pairs: folder of the tables of pairs.
    """
    blocks = (PAIRS.blocks(pairs / f"{split}.parquet", rows=_SAMPLE) for split in reversed(SPLITS))
    rows = next((block for split in blocks for block in split), None)
    if rows is None or not rows["file"][0].is_valid or rows["size"][0].is_valid:
        return
    vectors, _ = unit_rows(given_vectors(rows, encoder.sidecar.embed_dim))
    if pictures := _pictures(rows):
        given, preparation = vectors[list(pictures)], encoder.sidecar.preparation
        raw = [read_picture(path, None) for path in pictures.values()]
        # Other tools ignore a rotation in the EXIF data.
        again = [encoder.embed_pixels(preparation.decode(raw, turned=turned)) for turned in (True, False)]
        cosines = np.max([(found * given).sum(axis=1) for found in again], axis=0)
        low, worst = int((cosines < LEAST_COSINE).sum()), list(pictures.values())[int(cosines.argmin())]
        found = f"{len(pictures)} pictures embedded again have a median cosine of {np.median(cosines):.3f}"
        found += f" with the given vectors, {low} of them less than {LEAST_COSINE}"
        if low > _FOREIGN * len(pictures):
            raise InputError(
                f"{found} (least: {worst.name}, {cosines.min():.3f}): these are of another model or preparation: set "
                "base to theirs, or read one model's rows with where="
            )
        print(f"embed: {found}")
        return
    if len(rows) < _FEWEST or encoder.sidecar.method.startswith("timm:"):
        return
    above = _above(encoder, rows["caption"].to_pylist(), vectors)
    recall, chance = float((above < _DEPTH).mean()), _DEPTH / len(rows)
    found = f"{recall:.0%} of {len(rows):,} captions find their vector among the first {_DEPTH} (chance {chance:.0%})"
    late = np.quantile(above, 1 - _UNRELATED) >= len(rows) / 2
    if recall < _CHANCES * chance or late:
        part = f", and {(above >= len(rows) / 2).mean():.0%} in the worse half (chance 50%)" if late else ""
        raise InputError(
            f"{found}{part}: {'some or all ' if late else 'the '}vectors are of another model, or the base does not "
            "read this language: set base to the model of the vectors, read one model's rows with where=, or set "
            "embed.check_given: false"
        )
    print(f"embed: {found}")


def _pictures(rows: pa.Table) -> dict[int, Path]:
    """Row -> the picture's file, as the table of captions names it; of the rows whose file is there."""
    found, names = dict[int, Path](), dict[Path, list[str]]()
    for row, (given, position) in enumerate(zip(rows["file"].to_pylist(), rows["position"].to_pylist(), strict=True)):
        captions = captions_of(Path(given))
        if captions not in names:
            column = name_column(pq.read_schema(captions).names) if captions.is_file() else None
            names[captions] = pq.read_table(captions, columns=[column])[column].to_pylist() if column else []
        place = folder_of(Path(given)) / str(names[captions][position]) if names[captions] else None
        if place is not None and is_file(place):
            found[row] = place
        if len(found) == _PICTURES:
            break
    return found


def _above(encoder: Encoder, captions: Sequence[str], vectors: Vectors) -> npt.NDArray[np.int64]:
    """The number of vectors that fit each caption better than its own one does."""
    scores = encoder.embed_texts(captions) @ vectors.T
    above: npt.NDArray[np.int64] = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return above
