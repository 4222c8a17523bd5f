"""The training rows of a method, and the held-out rows of its early metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from components.core.compute.distributed import World
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.settings import Train
from components.core.system.errors import InputError, prefixed_errors
from components.core.tables import folders
from components.core.tables.records import PAIRS, PARAPHRASES
from components.core.tables.training_columns import table_file
from components.data.leaks.report import FOLDER as LEAKS_FOLDER
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.embeddings import ImageEmbeddings
from components.training.held_out import Data, HeldOut, choose_held_out
from components.training.methods.contract.method import Method, Optimisation
from components.training.rows.batches import BatchPlan, BatchSource, CachedFeatures, TableSource
from components.training.rows.shards import ShardSource, shards_hash
from components.training.rows.sources import TableImages, table_source
from components.training.rows.tables import IMAGE_IDS, has_weights, input_files, join_rows, with_image_ids
from components.training.sharing import once_per_machine


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


def load_data(
    train: Train, method: Method[Optimisation], encoder: Encoder, files: TrainingFiles, world: World
) -> tuple[BatchSource, Data]:
    """Join, split and tokenise a method's rows, once per machine; returns their batches and the held-out rows."""
    plan = BatchPlan.of(method, train.seed, world)
    rows, data = once_per_machine(
        world, lambda: _read_tables(train, method, encoder, files, plan), train.checkpoint_dir
    )
    # Arrow keeps the memory of the tables, half a kilobyte a row, for tables to come.
    pa.default_memory_pool().release_unused()
    weighted = has_weights(files.train)
    if rows is not None:
        if weighted and not method.weighted and world.leads:
            print(f"{method.name} ignores the weights of {files.train}: all rows count the same")
        return replace(rows, world=world), data
    assert train.shards is not None
    if weighted and world.leads:
        print(f"train.shards: shards have neither the weights of {files.train} nor the images of each query")
    published = TestSetKeys.read(files.leaks)
    source = ShardSource(train.shards, plan, encoder.tokenizer, encoder.sidecar.preparation, data.held, published)
    return source, replace(data, streamed={"shards": shards_hash(train.shards, world)} | published.hashes())


def _read_tables(
    train: Train, method: Method[Optimisation], encoder: Encoder, files: TrainingFiles, plan: BatchPlan
) -> tuple[TableSource | None, Data]:
    """Batches of the rows, None if they come from shards, and the held-out rows."""
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
    queries = queries.drop_duplicates("image_id")
    held_out = None
    if len(queries) >= _FEWEST and "caption" in queries:
        held_out = _held_out(queries, None if images.cached is None else embeddings, encoder, files)
    return source, Data(inputs, held, held_out, held_rows)


def _held_out(
    queries: pd.DataFrame, embeddings: ImageEmbeddings | None, encoder: Encoder, files: TrainingFiles
) -> HeldOut:
    """Queries whose gallery are their images and those of the validation pairs; pixels without `embeddings`."""
    ids, preparation = queries["id"].tolist(), encoder.sidecar.preparation
    if embeddings is None:
        gallery = _gallery_pixels(ids, preparation, files)
    else:
        val = ImageEmbeddings.open(files.embeddings, "val", files.pairs / "val.parquet")
        gallery = torch.from_numpy(np.concatenate([embeddings.features[embeddings.ids.places(ids)], val.features]))
    paraphrases = queries["paraphrase_1"].tolist() if "paraphrase_1" in queries else None
    return HeldOut(queries["caption"].tolist(), paraphrases, gallery, preparation)


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
