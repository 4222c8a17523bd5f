"""Image embeddings that a user gives: read by row, and checked to be of the base."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.embedding_files import captions_of, folder_of, name_column, read_embeddings
from components.core.pictures.folder import read_picture
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS, SPLITS
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows

LEAST_COSINE = 0.99
"""Smallest median cosine of pictures that are embedded again; libraries decode and resize with other arithmetic."""
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

    Raises:
        InputError: the vectors are of another model or another preparation of pictures.
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
        cosine = float(np.median(np.max([(found * given).sum(axis=1) for found in again], axis=0)))
        found = f"{len(pictures)} pictures embedded again have a median cosine of {cosine:.3f} with the given vectors"
        if cosine < LEAST_COSINE:
            raise InputError(f"{found}: these are of another model or preparation: set base to theirs")
        print(f"embed: {found}")
        return
    if len(rows) < _FEWEST or encoder.sidecar.method.startswith("timm:"):
        return
    recall, chance = _recall(encoder, rows["caption"].to_pylist(), vectors), _DEPTH / len(rows)
    found = f"{recall:.0%} of {len(rows):,} captions find their vector among the first {_DEPTH} (chance {chance:.0%})"
    if recall < _CHANCES * chance:
        raise InputError(
            f"{found}: the vectors are of another model, or the base does not read this language: set base to the "
            "model of the vectors, or embed.check_given: false"
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
        if place is not None and place.is_file():
            found[row] = place
        if len(found) == _PICTURES:
            break
    return found


def _recall(encoder: Encoder, captions: Sequence[str], vectors: Vectors) -> float:
    scores = encoder.embed_texts(captions) @ vectors.T
    above = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return float((above < _DEPTH).mean())
