"""A method's data: the rows it trains on, and the held-out ones that it is watched on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from components.core import folders
from components.core.compute.distributed import World
from components.core.errors import InputError, told_of
from components.core.pictures import PICTURE, Pictures
from components.core.records import PAIRS, PARAPHRASES
from components.core.settings import Settings, Train
from components.core.training_columns import table_file
from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import decode, normalise
from components.encoders.embeddings import ImageEmbeddings
from components.methods.contract.method import Method
from components.methods.contract.optimisation import Optimisation
from components.training.held_out import Data, HeldOut, Vectors, choose_held_out
from components.training.rows.batches import OtherImages, Source, TableSource
from components.training.rows.crops import Crops
from components.training.rows.examples import IMAGE_IDS, input_files, join_rows, with_image_ids
from components.training.rows.query_log import has_weights
from components.training.rows.sources import Images, Wanted, table_source
from components.training.shards.contents import shards_hash
from components.training.shards.source import ShardSource


@dataclass(frozen=True)
class Files:
    """Folders of the stage's inputs and output.

    `validated` is what a method reads: a folder of validated tables, or a single file.
    `leaks` is told to the run. Only of shards is anything left out for it, so DVC does not train anew for it.
    """

    base: Path = folders.BASE
    validated: Path = folders.VALIDATED
    embeddings: Path = folders.EMBEDDINGS
    pairs: Path = folders.PAIRS
    models: Path = Path("models")
    leaks: Path = LEAKS_FOLDER


_BLOCK = 10_000
_FEWEST = 10
"""Held-out queries under which early metrics would be noise."""


def load_data(
    settings: Settings, method: Method, hyper: Optimisation, encoder: Encoder, files: Files, world: World, device: str
) -> Data:
    """Join, tokenise and split a method's rows.

    Raises:
        InputError: tables are missing or do not fit each other, or image embeddings are another tower's.
    """
    pixels = hyper.image_tower != "frozen"
    embeddings = ImageEmbeddings.open(files.embeddings, "train", files.pairs / "train.parquet")
    if not pixels and embeddings.image_tower_sha256 != encoder.sidecar.image_tower_sha256:
        raise InputError(f"{files.embeddings} was made by another image tower than {files.base}: run `dvc repro embed`")
    images = Images(
        ids=embeddings.ids,
        image_ids=embeddings.image_ids,
        pairs=files.pairs / "train.parquet",
        size=encoder.sidecar.image_size,
        features=None if pixels else embeddings.features,
        norms=None if pixels else embeddings.norms,
        neighbours_by=embeddings.features,
        others=_other_images(method.neighbours(hyper).data, encoder, pixels),
    )
    wanted = Wanted(method.columns(hyper), method.draws(hyper))
    columns = method.needs(hyper)
    inputs = input_files(columns, files.validated, images.pairs)
    logged = has_weights(images.pairs)
    if logged:
        inputs |= {"pairs": images.pairs}
    watched = table_file(files.validated, "paraphrases")
    if watched.is_file():
        inputs |= {"paraphrases": watched}
        # Before the rows' texts are there, which take as much memory as this does.
        held, queries = _paraphrases_held_out(watched, embeddings, settings.train)
    rows = with_image_ids(join_rows(columns, files.validated, images.pairs), embeddings.ids, embeddings.image_ids)
    if not watched.is_file():
        held = choose_held_out(rows, settings.train.held_out, settings.train.seed)
        queries = rows[rows["image_id"].isin(held)]

    def source(chosen: pd.DataFrame, batch_size: int, world: World) -> TableSource:
        seed, cache, visits = settings.train.seed, settings.train.state / "tokens", method.visits(hyper)
        near, weighted = method.neighbours(hyper).count, method.weighted(hyper)
        tokenizer = encoder.tokenizer
        return table_source(
            chosen, wanted, images, tokenizer, batch_size, seed, cache, world, visits, near, weighted=weighted
        )

    def gallery(ids: list[str]) -> Callable[[], Vectors]:
        return _embed_gallery(ids, encoder, files, device) if pixels else _cached_gallery(ids, embeddings, files)

    own = rows[rows["image_id"].isin(held)].drop_duplicates("image_id")
    # A row about two images would show a held-out one as the other.
    shows_held = rows[[column for column in IMAGE_IDS.values() if column in rows]].isin(held).any(axis=1)
    # Column by column: of five million rows a copy of all texts is a gigabyte.
    free = pd.DataFrame({name: rows.pop(name)[~shows_held] for name in rows.columns.tolist()})
    crops = Crops(hyper.least_crop, settings.train.seed) if hyper.least_crop < 1 else None
    training: Source
    streamed: dict[str, str] = {}
    if settings.train.shards is not None and pixels:
        if logged and world.leads:
            print(f"train.shards: shards hold neither the weights of {images.pairs} nor which images a query has")
        published = TestSetKeys.read(files.leaks)
        training = _shard_source(settings.train, wanted, held, published, encoder, hyper.batch_size, crops, world)
        streamed = {"shards": shards_hash(settings.train.shards, world)} | published.hashes()
    else:
        training = replace(source(free, hyper.batch_size, world), crops=crops)
    return Data(
        source=training,
        inputs=inputs,
        held_out=_held_out(queries, gallery),
        held_rows=source(own, min(len(own), hyper.batch_size), World()) if len(own) >= _FEWEST else None,
        streamed=streamed,
    )


def _other_images(data: Path | None, encoder: Encoder, pixels: bool) -> OtherImages | None:
    """The images to train on of another checkout's `data` folder, as its stages `prepare` and `embed` wrote them.

    Raises:
        InputError: they are missing or another image tower's, or this one trains and would leave them behind.
    """
    if data is None:
        return None
    if pixels:
        raise InputError(f"images of {data} stand beside the rows as embeddings alone: set image_tower to frozen")
    with told_of(f"distractors of {data}"):
        found = ImageEmbeddings.open(data / "embeddings", "train", data / "pairs" / "train.parquet")
    if found.image_tower_sha256 != encoder.sidecar.image_tower_sha256:
        raise InputError(f"{data / 'embeddings'} are another image tower's than the base's: embed with the same base")
    return OtherImages(found.image_ids, found.features, found.norms)


def _shard_source(
    train: Train,
    wanted: Wanted,
    held_out: frozenset[str],
    published: TestSetKeys,
    encoder: Encoder,
    batch_size: int,
    crops: Crops | None,
    world: World,
) -> ShardSource:
    shards = train.shards
    assert shards is not None
    return ShardSource(
        shards.urls,
        encoder.tokenizer,
        encoder.sidecar.image_size,
        batch_size,
        train.seed,
        texts=shards.columns,
        draws=wanted.draws,
        wanted=wanted.columns - {"image"},
        held_out=held_out,
        published=published,
        samples_per_epoch=shards.samples_per_epoch,
        max_error_share=shards.max_error_share,
        crops=crops,
        world=world,
    )


def _paraphrases_held_out(watched: Path, pairs: ImageEmbeddings, train: Train) -> tuple[frozenset[str], pd.DataFrame]:
    """The images to hold out of those with a row of the table `watched`, of paraphrases, and these rows.

    So all methods that read this table are watched alike.
    """
    named = with_image_ids(PARAPHRASES.read(watched, ["id"]).to_pandas(), pairs.ids, pairs.image_ids)
    held = choose_held_out(named, train.held_out, train.seed)
    chosen = named["image_id"].isin(held)
    found: pd.DataFrame = PARAPHRASES.take(
        watched, np.flatnonzero(chosen), ["id", "caption", "paraphrase_1"], _BLOCK
    ).to_pandas()
    return held, found.assign(image_id=named["image_id"][chosen].to_numpy())


def _held_out(rows: pd.DataFrame, gallery: Callable[[list[str]], Callable[[], Vectors]]) -> HeldOut | None:
    first = rows.drop_duplicates("image_id")
    if len(first) < _FEWEST or "caption" not in first:
        return None
    return HeldOut(
        captions=first["caption"].tolist(),
        paraphrases=first["paraphrase_1"].tolist() if "paraphrase_1" in first else None,
        gallery=gallery(first["id"].tolist()),
    )


def _cached_gallery(ids: list[str], train: ImageEmbeddings, files: Files) -> Callable[[], Vectors]:
    val = ImageEmbeddings.open(files.embeddings, "val", files.pairs / "val.parquet")
    features = np.concatenate([train.features[train.ids.places(ids)], val.features])
    return lambda: features


def _embed_gallery(ids: list[str], encoder: Encoder, files: Files, device: str) -> Callable[[], Vectors]:
    """The image tower changes as it trains, so the gallery is embedded anew each time."""
    place = {pair: row for row, pair in enumerate(PAIRS.read(files.pairs / "train.parquet", ["id"])["id"].to_pylist())}
    chosen = sorted(ids, key=place.__getitem__)
    train = PAIRS.take(files.pairs / "train.parquet", [place[pair] for pair in chosen], ["id", *PICTURE])
    val = PAIRS.read(files.pairs / "val.parquet", ["id", *PICTURE])
    with Pictures() as pictures:
        encoded = dict(zip(chosen, pictures.of(train), strict=True))
        raw = [*(encoded[pair] for pair in ids), *pictures.of(val)]
    pixels = decode(raw, encoder.sidecar.image_size, [*ids, *val["id"].to_pylist()])

    @torch.no_grad()
    def gallery() -> Vectors:
        model: Any = encoder.model
        parts: list[Tensor] = [
            F.normalize(model.encode_image(normalise(block.to(device))).float(), dim=-1).cpu()
            for block in torch.split(pixels, 256)
        ]
        vectors: Vectors = torch.cat(parts).numpy()
        return vectors

    return gallery
