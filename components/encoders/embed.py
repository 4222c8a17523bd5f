"""Stage `embed`: image embeddings of all splits by the frozen image tower, once.

The pairs are embedded part by part. What is done is kept in `embed.state`, shared by all ranks, and so goes on after a
kill; pictures of the next batches are read and decoded while the tower works.

python -m components.encoders.embed
torchrun --nproc-per-node 8 -m components.encoders.embed
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from more_itertools import chunked
from numpy.lib.format import open_memmap
from torch import Tensor

from components.core import folders
from components.core.ahead import mapped, prefetched
from components.core.arrays import mapped_array
from components.core.checking import load_checked
from components.core.compute.distributed import World, become_torchrun, join_world, launched_by_torchrun
from components.core.compute.hardware import pick_device
from components.core.embedding_files import read_embeddings
from components.core.errors import InputError
from components.core.files import atomic_file, atomic_folder, content_hash, file_hash
from components.core.pictures import PICTURE, Pictures
from components.core.progress import bar
from components.core.project import run_in_project, start
from components.core.record_files import write_record
from components.core.records import PAIRS, SPLITS
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.adapter.images import decode
from components.encoders.embeddings import MANIFEST, Embedded, Manifest, require_finite

_AHEAD = 2
"""Batches that wait decoded."""


@dataclass(frozen=True)
class _Split:
    """One split of the pairs and where its parts are kept while the stage runs."""

    name: str
    pairs: Path
    sha256: str
    rows: int
    folder: Path

    def file(self, part: int) -> Path:
        return self.folder / f"{part:06d}.npy"


def run(
    settings: Settings,
    output: Path = folders.EMBEDDINGS,
    pairs_folder: Path = folders.PAIRS,
    base: Path = folders.BASE,
) -> None:
    """Write unit rows `<split>.npy` and their lengths `<split>.norms.npy` for every split, and the manifest.

    Pairs that are embeddings already, see source `embeddings`, are taken as they are.

    Raises:
        InputError: an image is missing or cannot be decoded, or its feature is not finite; the message names it. Or
            given embeddings have another width than the encoder.
    """
    with join_world(pick_device(settings.embed.device)) as (world, device):
        encoder = Encoder.load(base)
        encoder.model.to(device).eval()
        tower = encoder.sidecar.image_tower_sha256
        splits = [_split(name, pairs_folder, settings, tower) for name in SPLITS]
        for split in splits:
            _embed(encoder, split, settings, world, device)
        world.wait()
        if world.leads:
            _assemble(splits, settings.embed.part, output, encoder)


def _split(name: str, pairs_folder: Path, settings: Settings, tower: str) -> _Split:
    pairs, embed = pairs_folder / f"{name}.parquet", settings.embed
    sha256 = file_hash(pairs) if pairs.exists() else ""
    key = content_hash(tower, sha256, str(embed.part), str(embed.batch_size))[:32]
    return _Split(name, pairs, sha256, PAIRS.count(pairs), embed.state / f"{name}-{key}")


def _embed(encoder: Encoder, split: _Split, settings: Settings, world: World, device: str) -> None:
    """Keep the raw features `[rows, dim]` of every part of this rank that is not there yet."""
    part_rows = settings.embed.part
    own = range(world.rank, -(-split.rows // part_rows), world.size)
    wanted = {part for part in own if not split.file(part).exists()}
    total = sum(min(part_rows, split.rows - part * part_rows) for part in own)
    left = sum(min(part_rows, split.rows - part * part_rows) for part in wanted)
    if not wanted:
        return
    blocks = PAIRS.blocks(split.pairs, ["id", *PICTURE], rows=part_rows)
    with bar(f"embed {split.name}", total, "image", initial=total - left) as progress:
        for part, block in enumerate(blocks):
            if part not in wanted:
                continue
            features = _features(encoder, block, settings.embed.batch_size, device)
            require_finite(features, encoder.sidecar.name, "picture", block["id"].to_pylist())
            with atomic_file(split.file(part)) as temporary, temporary.open("wb") as file:
                np.save(file, features, allow_pickle=False)
            progress.update(len(features))


def _features(encoder: Encoder, rows: pa.Table, batch_size: int, device: str) -> Vectors:
    """Raw features `[rows, dim]`; an image that several rows show, each with another caption, is embedded once."""
    if rows["file"][0].is_valid and not rows["size"][0].is_valid:
        return _given(rows, encoder.sidecar.embed_dim)
    pairs = rows.to_pylist()
    first = {row["image_id"]: row for row in reversed(pairs)}
    distinct = [first[image] for image in dict.fromkeys(row["image_id"] for row in pairs)]
    size = encoder.sidecar.image_size
    with closing(prefetched(lambda _: _decoded(distinct, batch_size, size), _AHEAD)) as batches:
        found = np.concatenate([encoder.pixel_features(pixels.to(device)) for pixels in batches])
    place = {row["image_id"]: number for number, row in enumerate(distinct)}
    return found[[place[row["image_id"]] for row in pairs]]


def _decoded(rows: Sequence[dict[str, object]], batch_size: int, size: int) -> Generator[Tensor]:
    """Pixels `[batch, 3, size, size]`, decoded by one thread per core; one reads, so that shards are in their order."""
    with Pictures() as pictures:
        encoded = ((str(row["id"]), pictures.one(row)) for row in rows)
        decoded = mapped(lambda one: decode([one[1]], size, [one[0]]), encoded, per_thread=batch_size)
        for batch in chunked((pixels for _, pixels in decoded), batch_size):
            yield torch.cat(batch)


def _given(rows: pa.Table, dim: int) -> Vectors:
    """Embeddings that the rows refer to, `[rows, dim]`; rows of a file that ascend are read in one go."""
    found = np.empty((rows.num_rows, dim), np.float32)
    files, positions = rows["file"].to_pylist(), rows["position"].to_numpy()
    start = 0
    for file, own in groupby(files):
        stop = start + len(list(own))
        first, last = int(positions[start:stop].min()), int(positions[start:stop].max())
        given = read_embeddings(Path(file), first, last - first + 1)
        if given.shape[1] != dim:
            raise InputError(
                f"{file} has embeddings of {given.shape[1]} numbers, those of the base have {dim}: set base to the "
                "model that made them"
            )
        found[start:stop] = given[positions[start:stop] - first]
        start = stop
    return found


def _assemble(splits: Sequence[_Split], part_rows: int, output: Path, encoder: Encoder) -> None:
    """Put the parts together as unit rows; memory holds one part."""
    dim = encoder.sidecar.embed_dim
    with atomic_folder(output) as folder:
        for split in splits:
            features = open_memmap(folder / f"{split.name}.npy", "w+", np.float32, (split.rows, dim))
            norms = open_memmap(folder / f"{split.name}.norms.npy", "w+", np.float32, (split.rows,))
            for start in range(0, split.rows, part_rows):
                raw = mapped_array(split.file(start // part_rows), "delete it and run `dvc repro embed`")
                features[start : start + len(raw)], norms[start : start + len(raw)] = unit_rows(np.asarray(raw))
            features.flush()
            norms.flush()
        made = {split.name: Embedded(pairs_sha256=split.sha256, rows=split.rows) for split in splits}
        tower = encoder.sidecar.image_tower_sha256
        write_record(folder / MANIFEST, Manifest(image_tower_sha256=tower, embed_dim=dim, splits=made))
    for split in splits:
        shutil.rmtree(split.folder, ignore_errors=True)


def main() -> None:
    """Embed the images of all splits by the frozen image tower.

    Example: python -m components.encoders.embed
    """

    def command() -> None:
        settings = load_checked()
        if settings.embed.processes > 1 and not launched_by_torchrun():
            become_torchrun(settings.embed.processes, ["-m", __spec__.name])
        run(settings)

    run_in_project(command)


if __name__ == "__main__":
    start(main)
