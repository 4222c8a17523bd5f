"""Stage `embed`: computes the image embeddings of all splits with the frozen image tower.

Pairs are embedded in parts. Finished parts are in `embed.state`, which all ranks share, so a killed stage resumes.

torchrun --nproc-per-node 8 -m components.encoders.embed
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import torch
import typer
from more_itertools import chunked
from torch import Tensor

from components.core.compute.devices import pick_device
from components.core.compute.distributed import become_torchrun, join_world
from components.core.compute.provenance import code_hash
from components.core.pictures.stored_pictures import PICTURE, Pictures, place_of
from components.core.settings import Embed, Settings
from components.core.system.checking import load_checked
from components.core.system.progress import bar
from components.core.system.project import run_in_project, start
from components.core.tables import folders
from components.core.tables.ahead import mapped, prefetched
from components.core.tables.arrays import mapped_array, written_array
from components.core.tables.files import atomic_file, atomic_folder, content_hash, file_hash
from components.core.tables.formats import write_record
from components.core.tables.records import PAIRS, SPLITS
from components.core.tables.work_shard import Shard
from components.core.tracking import tracked_run
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.sidecar import WEIGHTS
from components.encoders.embeddings import MANIFEST, EmbeddedSplit, Manifest, require_finite
from components.encoders.given_vectors import check_given, given_vectors

_AHEAD = 2
"""Batches that wait for the tower."""
_Encoded = tuple[str, bytes]
"""The file of a picture, and its bytes."""


@dataclass(frozen=True)
class _Split:
    """One split of the pairs, and the folder of its parts while the stage runs."""

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
    *,
    shard: Shard | None = None,
    track: bool = False,
) -> None:
    """Write unit rows `<split>.npy` and their lengths `<split>.norms.npy` for every split, and the manifest.

    Embeddings of source `embeddings` are copied. With a `shard` only its parts are embedded, into `embed.state`; a
    later run without a shard joins all parts. With `track` it is an MLflow run with the manifest as artifact.
    """
    with join_world(pick_device(settings.device)) as (world, device), ExitStack() as stack:
        tracked, begun = None, time.monotonic()
        if track and world.leads:
            params, inputs = settings.embed.model_dump(mode="json", exclude={"state"}), {"base": base / WEIGHTS}
            tracked = stack.enter_context(tracked_run("embed", "embeddings", settings, params, inputs))
        encoder, embed = Encoder.load(base).to(device), settings.embed
        tower = encoder.sidecar.image_tower_sha256
        splits = [_split(name, pairs_folder, settings, tower) for name in SPLITS]
        if embed.check_given and world.leads:
            check_given(encoder, pairs_folder)
        whole = shard or Shard()
        own = Shard(whole.number * world.size + world.rank, whole.of * world.size)
        made = sum(_embed(encoder, split, settings, own, device) for split in splits)
        # Each rank waits for all others here.
        made = sum(world.everyones(made))
        if not world.leads:
            return
        if shard is None:
            _assemble(splits, settings.embed.part, output, encoder)
            if tracked is not None:
                tracked.log_metrics({split.name: split.rows for split in splits})
                tracked.log_speed(sum(split.rows for split in splits), begun)
                tracked.log_artifact(output / MANIFEST)
        else:
            print(f"embed shard {shard}: made {made}")


def _split(name: str, pairs_folder: Path, settings: Settings, tower: str) -> _Split:
    pairs, embed = pairs_folder / f"{name}.parquet", settings.embed
    sha256 = file_hash(pairs) if pairs.exists() else ""
    parts = (tower, sha256, str(embed.part), str(embed.batch_size), code_hash("embed"))
    key = content_hash(*parts)[:32]
    return _Split(name, pairs, sha256, PAIRS.count(pairs), embed.state / f"{name}-{key}")


def _embed(encoder: Encoder, split: _Split, settings: Settings, shard: Shard, device: str) -> int:
    """Write the raw features `[rows, dim]` of the shard's missing parts; returns the number of parts."""
    embed = settings.embed
    rows = {start // embed.part: min(embed.part, split.rows - start) for start in range(0, split.rows, embed.part)}
    own = list(rows)[shard.number :: shard.of]
    wanted = {part for part in own if not split.file(part).exists()}
    if not wanted:
        return 0
    total, left = (sum(rows[part] for part in parts) for parts in (own, wanted))
    blocks = PAIRS.blocks(split.pairs, ["id", *PICTURE], rows=embed.part)
    with bar(f"embed {split.name}", total, "image", initial=total - left) as progress:
        for part, block in enumerate(blocks):
            if part not in wanted:
                continue
            features = _features(encoder, block, embed, device)
            require_finite(features, encoder.sidecar.name, "picture", block["id"].to_pylist())
            with atomic_file(split.file(part)) as temporary, temporary.open("wb") as file:
                np.save(file, features, allow_pickle=False)
            progress.update(len(features))
    return len(wanted)


def _features(encoder: Encoder, rows: pa.Table, embed: Embed, device: str) -> Vectors:
    """Raw features `[rows, dim]`; an image of several rows is embedded once."""
    if rows["file"][0].is_valid and not rows["size"][0].is_valid:
        return given_vectors(rows, encoder.sidecar.embed_dim)
    pairs = rows.to_pylist()
    first = {row["image_id"]: row for row in reversed(pairs)}
    distinct = [first[image] for image in dict.fromkeys(row["image_id"] for row in pairs)]
    preparation = encoder.sidecar.preparation
    with closing(_batches(distinct, embed, preparation, device)) as batches:
        features = [encoder.pixel_features(preparation.normalise(pixels.to(device))) for pixels in batches]
    place = {row["image_id"]: number for number, row in enumerate(distinct)}
    return np.concatenate(features)[[place[row["image_id"]] for row in pairs]]


def _batches(
    rows: Sequence[dict[str, object]], embed: Embed, preparation: Preparation, device: str
) -> Generator[Tensor]:
    """Pixels `[batch, 3, size, size]`, prepared by threads while the tower computes.

    If the tower uses all cores, threads only read: decoding at the same time would slow the tower down by twice the
    time that decoding takes.
    """
    if device != "cpu" or torch.get_num_threads() < len(os.sched_getaffinity(0)):
        yield from prefetched(lambda _: _decoded(_read(rows), embed, preparation), _AHEAD)
        return
    with closing(prefetched(lambda _: _in_batches(_read(rows), embed.batch_size), _AHEAD)) as encoded:
        for batch in encoded:
            yield from _decoded(batch, embed, preparation)


def _read(rows: Iterable[dict[str, object]]) -> Generator[_Encoded]:
    """Each row's picture; one thread reads, so that shards are read in order."""
    with Pictures() as pictures:
        for row in rows:
            yield place_of(row), pictures.one(row)


def _in_batches(encoded: Iterable[_Encoded], batch_size: int) -> Generator[list[_Encoded]]:
    yield from chunked(encoded, batch_size)


def _decoded(encoded: Iterable[_Encoded], embed: Embed, preparation: Preparation) -> Generator[Tensor]:
    """Pixels `[batch, 3, size, size]`, decoded by one thread per core."""
    decoded = mapped(lambda item: preparation.decode([item[1]], [item[0]]), encoded, per_thread=embed.batch_size)
    for batch in chunked((pixels for _, pixels in decoded), embed.batch_size):
        yield torch.cat(batch)


def _assemble(splits: Sequence[_Split], part_rows: int, output: Path, encoder: Encoder) -> None:
    """Join the parts as unit rows; memory holds one part."""
    dim = encoder.sidecar.embed_dim
    with atomic_folder(output) as folder:
        for split in splits:
            with (
                written_array(folder / f"{split.name}.npy", np.float32, (split.rows, dim)) as add_features,
                written_array(folder / f"{split.name}.norms.npy", np.float32, (split.rows,)) as add_norms,
            ):
                for part in range(-(-split.rows // part_rows)):
                    raw = mapped_array(split.file(part), "delete it and run `dvc repro embed`")
                    features, norms = unit_rows(np.asarray(raw))
                    add_features(features)
                    add_norms(norms)
        made = {split.name: EmbeddedSplit(pairs_sha256=split.sha256, rows=split.rows) for split in splits}
        tower = encoder.sidecar.image_tower_sha256
        write_record(folder / MANIFEST, Manifest(image_tower_sha256=tower, embed_dim=dim, splits=made))
    for split in splits:
        shutil.rmtree(split.folder, ignore_errors=True)


def main(
    shard: Annotated[
        str | None, typer.Option(help="Embed only this shard of the pictures, such as 0/4, into embed.state.")
    ] = None,
) -> None:
    """Embed the images of all splits with the frozen image tower.

    Examples: python -m components.encoders.embed; ... --shard 0/4
    """

    def command() -> None:
        settings, chosen = load_checked(entries=()), None if shard is None else Shard.parse(shard)
        own = [] if chosen is None else ["--shard", str(chosen)]
        become_torchrun(settings.embed.processes, ["-m", __spec__.name, *own])
        run(settings, shard=chosen, track=chosen is None)

    run_in_project(command)


if __name__ == "__main__":
    start(main)
