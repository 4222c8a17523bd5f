"""The training rows of a method, and the held-out rows of its early metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from components.core.compute.distributed import World
from components.core.compute.sharing import once_per_machine
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.settings import Settings, Train
from components.core.system.errors import InputError, prefixed_errors
from components.core.tables import folders
from components.core.tables.records import PAIRS, PARAPHRASES
from components.core.tables.training_columns import table_file
from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.embeddings import ImageEmbeddings
from components.training.held_out import Data, HeldOut, Vectors, choose_held_out
from components.training.methods.contract.method import Method, Optimisation
from components.training.rows.batches import BatchPlan, BatchSource, CachedFeatures, TableSource
from components.training.rows.shards import ShardSource, shards_hash
from components.training.rows.sources import TableImages, table_source
from components.training.rows.tables import IMAGE_IDS, has_weights, input_files, join_rows, with_image_ids


@dataclass(frozen=True)
class TrainingFiles:
    """Folders of the stage's inputs and output.

    Attributes:
        validated: a folder of validated tables, or a single file.
        leaks: test sets, for the run's tags. Only shards are filtered by them, so DVC does not retrain if they change.
    """

    base: Path = folders.BASE
    validated: Path = folders.VALIDATED
    embeddings: Path = folders.EMBEDDINGS
    pairs: Path = folders.PAIRS
    models: Path = Path("models")
    leaks: Path = LEAKS_FOLDER

    @property
    def train(self) -> Path:
        """The table of the training pairs."""
        return self.pairs / "train.parquet"


_FEWEST = 10
"""Held-out queries; with fewer there are no early metrics."""


@dataclass(frozen=True)
class _Tables:
    """The contents of a method's tables, without their texts, except those of held-out queries.

    Attributes:
        held: ids of held-out images.
        queries: one row per held-out query; None with too few, or without captions.
        gallery: image features, or pixels if the image tower trains, of the queries and of the validation pairs.
        source: batches of the rows; None if they come from shards.
        held_rows: as in `Data`.
    """

    inputs: dict[str, Path]
    held: frozenset[str]
    queries: pd.DataFrame | None
    gallery: Tensor
    source: TableSource | None
    held_rows: TableSource | None


def load_data(
    settings: Settings,
    method: Method[Optimisation],
    encoder: Encoder,
    files: TrainingFiles,
    world: World,
    device: str,
) -> Data:
    """Join, split and tokenise a method's rows, once per machine."""
    train = settings.train
    plan = BatchPlan.of(method, train.seed, world)
    tables = once_per_machine(world, lambda: _read_tables(train, method, encoder, files, plan), train.checkpoint_dir)
    # Arrow keeps the memory of the tables, half a kilobyte a row, for tables to come.
    pa.default_memory_pool().release_unused()
    source: BatchSource
    streamed: dict[str, str] = {}
    weighted = has_weights(files.train)
    if tables.source is not None:
        source = replace(tables.source, world=world)
        if weighted and not method.weighted and world.leads:
            print(f"{method.name} ignores the weights of {files.train}: all rows count the same")
    else:
        assert train.shards is not None
        if weighted and world.leads:
            print(f"train.shards: shards have neither the weights of {files.train} nor the images of each query")
        published = TestSetKeys.read(files.leaks)
        source = ShardSource(train.shards, plan, encoder.tokenizer, encoder.sidecar.preparation, tables.held, published)
        streamed = {"shards": shards_hash(train.shards, world)} | published.hashes()
    held_out = None
    if tables.queries is not None:
        captions, paraphrases = (
            tables.queries[name].tolist() if name in tables.queries else None for name in ("caption", "paraphrase_1")
        )
        held_out = HeldOut(captions or [], paraphrases, _gallery(tables.gallery, encoder, method.settings, device))
    return Data(source, tables.inputs, held_out, tables.held_rows, streamed)


def _read_tables(
    train: Train, method: Method[Optimisation], encoder: Encoder, files: TrainingFiles, plan: BatchPlan
) -> _Tables:
    embeddings = ImageEmbeddings.open(files.embeddings, "train", files.train)
    images = _images(method, encoder, files, embeddings)
    inputs, held, queries, rows = _rows(method, files, embeddings, train)
    own = rows[rows["image_id"].isin(held)].drop_duplicates("image_id")
    # The other image of a row may be a held-out one, too.
    shows_held = rows[[column for column in IMAGE_IDS.values() if column in rows]].isin(held).any(axis=1)
    # Column by column: a copy of all texts of five million rows takes a gigabyte.
    free = pd.DataFrame({name: rows.pop(name)[~shows_held] for name in rows.columns.tolist()})
    source, cache = None, train.checkpoint_dir / "tokens"
    if train.shards is None or images.cached is not None:
        source = table_source(free, images, plan, encoder.tokenizer, cache)
    held_rows = None
    if len(own) >= _FEWEST:
        whole = replace(plan, least_crop=1.0, world=World())
        held_rows = table_source(own, images, whole, encoder.tokenizer, cache)
        held_rows = replace(held_rows, sampler=replace(held_rows.sampler, drops=False))
    queries, gallery = queries.drop_duplicates("image_id"), torch.empty(0)
    if len(queries) < _FEWEST or "caption" not in queries:
        return _Tables(inputs, held, None, gallery, source, held_rows)
    ids = queries["id"].tolist()
    if images.cached is not None:
        val = ImageEmbeddings.open(files.embeddings, "val", files.pairs / "val.parquet")
        features = np.concatenate([embeddings.features[embeddings.ids.places(ids)], val.features])
        gallery = torch.from_numpy(features)
    else:
        gallery = _gallery_pixels(ids, encoder.sidecar.preparation, files)
    return _Tables(inputs, held, queries, gallery, source, held_rows)


def _images(
    method: Method[Optimisation], encoder: Encoder, files: TrainingFiles, embeddings: ImageEmbeddings
) -> TableImages:
    """The images that rows name: cached features of a frozen image tower, or pictures to decode."""
    cached = None
    if method.settings.image_tower == "frozen":
        if embeddings.image_tower_sha256 != encoder.sidecar.image_tower_sha256:
            raise InputError(
                f"{files.embeddings} was made by another image tower than {files.base}: run `dvc repro embed`"
            )
        cached = CachedFeatures(embeddings.features, embeddings.norms)
    return TableImages(
        ids=embeddings.ids,
        image_ids=embeddings.image_ids,
        pairs=files.train,
        preparation=encoder.sidecar.preparation,
        cached=cached,
        similar=embeddings.features,
        others=_other_images(method.neighbours.data, encoder, cached is None),
    )


def _rows(
    method: Method[Optimisation], files: TrainingFiles, embeddings: ImageEmbeddings, train: Train
) -> tuple[dict[str, Path], frozenset[str], pd.DataFrame, pd.DataFrame]:
    """The input files by name, the ids of held-out images, the rows of held-out queries, and all rows."""
    columns = method.needs
    inputs = input_files(columns, files.validated, files.train)
    if has_weights(files.train):
        inputs |= {"pairs": files.train}
    watched = table_file(files.validated, "paraphrases")
    if watched.is_file():
        inputs |= {"paraphrases": watched}
        # Before `join_rows`, so that both tables of texts are never in memory together.
        held, queries = _paraphrases_held_out(watched, embeddings, train)
    rows = with_image_ids(join_rows(columns, files.validated, files.train), embeddings.ids, embeddings.image_ids)
    if not watched.is_file():
        held = choose_held_out(rows, train.validation_images, train.seed)
        queries = rows[rows["image_id"].isin(held)]
    return inputs, held, queries, rows


def _other_images(data: Path | None, encoder: Encoder, pixels: bool) -> CachedFeatures | None:
    """The training images in the `data` folder of another checkout, written by its stages `prepare` and `embed`."""
    if data is None:
        return None
    if pixels:
        raise InputError(
            f"distractor images in {data} exist only as embeddings: set image_tower: frozen, or remove distractor_data"
        )
    with prefixed_errors(f"distractors of {data}"):
        embeddings = ImageEmbeddings.open(data / "embeddings", "train", data / "pairs" / "train.parquet")
    if embeddings.image_tower_sha256 != encoder.sidecar.image_tower_sha256:
        raise InputError(
            f"{data / 'embeddings'} come from another image tower than the base's: embed with the same base"
        )
    return CachedFeatures(embeddings.features, embeddings.norms, embeddings.image_ids)


def _paraphrases_held_out(watched: Path, pairs: ImageEmbeddings, train: Train) -> tuple[frozenset[str], pd.DataFrame]:
    """Held-out images of the table `watched`, of paraphrases, and its rows about them: the same for all methods."""
    named = with_image_ids(PARAPHRASES.read(watched, ["id"]).to_pandas(), pairs.ids, pairs.image_ids)
    held = choose_held_out(named, train.validation_images, train.seed)
    chosen = named["image_id"].isin(held)
    rows: pd.DataFrame = PARAPHRASES.take(
        watched, np.flatnonzero(chosen), ["id", "caption", "paraphrase_1"], 10_000
    ).to_pandas()
    return held, rows.assign(image_id=named["image_id"][chosen].to_numpy())


def _gallery_pixels(ids: list[str], preparation: Preparation, files: TrainingFiles) -> Tensor:
    """Pixels of the images of the pairs `ids` and of the validation pairs."""
    place = {pair: row for row, pair in enumerate(PAIRS.read(files.train, ["id"])["id"].to_pylist())}
    chosen = sorted(ids, key=place.__getitem__)
    train = PAIRS.take(files.train, [place[pair] for pair in chosen], ["id", *PICTURE])
    val = PAIRS.read(files.pairs / "val.parquet", ["id", *PICTURE])
    with Pictures() as pictures:
        encoded = dict(zip(chosen, pictures.of(train), strict=True))
        raw = [*(encoded[pair] for pair in ids), *pictures.of(val)]
    return preparation.decode(raw, [*ids, *val["id"].to_pylist()])


def _gallery(images: Tensor, encoder: Encoder, hyper: Optimisation, device: str) -> Callable[[], Vectors]:
    """A function that returns the gallery's features, with the current image tower if it trains."""

    @torch.no_grad()
    def gallery() -> Vectors:
        features: Vectors = images.numpy()
        if hyper.image_tower != "frozen":
            model: Any = encoder.model
            normalise = encoder.sidecar.preparation.normalise
            parts = [model.encode_image(normalise(block.to(device))).float() for block in torch.split(images, 256)]
            features = torch.cat([F.normalize(part, dim=-1).cpu() for part in parts]).numpy()
        return features

    return gallery
