"""A method's data in a small world: what it trains on, and what it never sees."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from components.cli.commands.write_shards import write_shards
from components.core.compute.distributed import World as Ranks
from components.core.system.errors import InputError
from components.core.tables.records import DIFFERENCES, PAIRS, PARAPHRASES, SEMCLIP_ROWS
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.embed import run as embed
from components.encoders.embeddings import ImageEmbeddings
from components.training.data import load_data
from components.training.held_out import Data, choose_held_out
from components.training.methods.registry import find_entry
from components.training.rows.batches import BatchSource
from components.training.rows.shards import ShardSource
from tests.conftest import TINY
from tests.support.toy_world import HELD_OUT, SAMPLES, World, make_world, world_settings

METHODS = ["paraclip", "semclip", "pc_clip", "caption_ft", "laclip_ft", "negclip", "conclip", "joint", "clip_scratch"]
METHODS += ["negation_clip", "cs_clip"]


@dataclass
class Loaded:
    source: BatchSource
    data: Data
    encoder: Encoder


def _load(
    world: World, name: str, train: dict[str, Any] | None = None, ranks: Ranks | None = None, **hyper: Any
) -> Loaded:
    settings = world_settings(world.folder / "state", **(train or {}))
    entry = find_entry(settings.methods, name)
    method = type(entry.method)(changed(entry.method.settings, **hyper))
    encoder = method.start(Encoder.load(world.files.base))
    return Loaded(*load_data(settings.train, method, encoder, world.files, ranks or Ranks()), encoder)


@pytest.fixture(scope="module")
def held(world: World) -> set[str]:
    """The held-out pairs, found by their captions."""
    held_out = _load(world, "paraclip").data.held_out
    assert held_out is not None
    pair = {caption: name for name, caption in world.captions.items()}
    return {pair[caption] for caption in held_out.captions}


def _shown(world: World, loaded: Loaded) -> set[str]:
    """Every pair whose text rows or images any column of two epochs shows."""
    train = ImageEmbeddings.open(world.files.embeddings, "train", world.files.pairs / "train.parquet")
    raw = (train.features * train.norms[:, None]).astype(np.float32)
    images = PAIRS.read(world.files.pairs / "train.parquet", ["image"])["image"].to_pylist()
    known = {row.tobytes(): pair for pair, row in zip(train.ids, raw, strict=True)}
    known |= {
        row.numpy().tobytes(): pair
        for pair, row in zip(train.ids, Preparation(size=16).decode(images).contiguous(), strict=True)
    }
    shown: set[str] = set()
    for epoch in range(2):
        for batch in loaded.source.epoch(epoch):
            shown |= set(batch.ids)
            for column in (*batch.features.values(), *batch.pixels.values()):
                shown |= {known[row.numpy().tobytes()] for row in column}
    return shown


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world whose training images have five captions each."""
    folder = tmp_path_factory.mktemp("shared")
    torch.manual_seed(0)
    return make_world(folder, Encoder.create("base", "tiny", TINY, "test"), world_settings(folder / "state"), 5)


@pytest.fixture(scope="module")
def image_of(shared: World) -> pd.Series:  # type: ignore[type-arg]
    """The image of each of its training pairs."""
    pairs = PAIRS.read(shared.files.pairs / "train.parquet", ["id", "image_id"]).to_pandas()
    return pairs.set_index("id")["image_id"]


@pytest.fixture(scope="module")
def held_images(image_of: Any) -> frozenset[str]:
    return choose_held_out(image_of.reset_index(), HELD_OUT, 0)


ONCE = {"paraclip", "caption_ft", "laclip_ft", "negclip", "conclip"}
"""Methods for which two captions of an image would be each other's negatives."""


@pytest.mark.parametrize("name", METHODS)
def test_held_out_images_never_train(name: str, shared: World, image_of: Any, held_images: frozenset[str]) -> None:
    loaded = _load(shared, name, batch_size=8)
    shown = set(image_of[[*_shown(shared, loaded)]])
    assert len(held_images) == 2
    assert not shown & held_images
    assert len(shown) > 16
    for batch in loaded.source.epoch(0) if name in ONCE else ():
        assert image_of[batch.ids].nunique() == 8


def test_an_epoch_visits_each_comparison_once(shared: World, image_of: Any, held_images: frozenset[str]) -> None:
    source = _load(shared, "pc_clip", batch_size=8).source
    table = DIFFERENCES.read(shared.files.validated / "differences.parquet").to_pandas()
    free = table[~(table["id"].map(image_of).isin(held_images) | table["other_id"].map(image_of).isin(held_images))]
    distinct = len(free[["id", "other_id"]].drop_duplicates())
    assert distinct > 60
    assert source.steps_per_epoch == distinct // 8
    shown = [pair for batch in source.epoch(0) for pair in batch.ids]
    assert len(shown) == distinct // 8 * 8
    assert not pd.Series(shown).value_counts().gt(free.drop_duplicates(["id", "other_id"])["id"].value_counts()).any()


def _distractors(loaded: Loaded, epoch: int) -> dict[str, tuple[float, ...]]:
    """The raw features of each row's distractor, by pair."""
    return {
        pair: tuple(row.tolist())
        for batch in loaded.source.epoch(epoch)
        for pair, row in zip(batch.ids, batch.features["neighbour.image"], strict=True)
    }


def test_released_conclip_keeps_the_nearest_image(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "data"
    shutil.copytree(world.folder / "pairs", elsewhere / "pairs")
    # The last twenty images, which the rows show, too: none may be its own distractor.
    train = PAIRS.read(elsewhere / "pairs" / "train.parquet")
    PAIRS.write(elsewhere / "pairs" / "train.parquet", train.slice(100))
    settings = world_settings(tmp_path_factory.mktemp("state"))
    embed(settings, elsewhere / "embeddings", elsewhere / "pairs", world.files.base)
    loaded = _load(world, "conclip", protocol="released", distractor_data=str(elsewhere))
    rows, others = (
        ImageEmbeddings.open(folder / "embeddings", "train", folder / "pairs" / "train.parquet")
        for folder in (world.folder, elsewhere)
    )
    first, second = _distractors(loaded, 0), _distractors(loaded, 1)
    for pair, found in first.items():
        row = rows.ids.index(pair)
        own = np.array(others.image_ids) == rows.image_ids[row]
        best = int(np.argmax(np.where(own, -2, others.features @ rows.features[row])))
        np.testing.assert_allclose(found, others.features[best] * others.norms[best], rtol=1e-5)
        assert second.get(pair, found) == found
    assert len(first) > 80
    # CoN-CLIP's own protocol draws another distractor in each epoch.
    drawn = [_distractors(_load(world, "conclip", protocol="drawn"), epoch) for epoch in range(2)]
    assert any(drawn[0][pair] != drawn[1][pair] for pair in drawn[0].keys() & drawn[1].keys())


def test_distractors_of_another_tower_or_for_a_tower_that_trains_are_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"distractors of {tmp_path}: .* is missing"):
        _load(world, "conclip", distractor_data=str(tmp_path))
    torch.manual_seed(9)
    Encoder.create("base", "tiny", TINY, "test").save(tmp_path / "base")
    shutil.copytree(world.folder / "pairs", tmp_path / "pairs")
    embed(world_settings(tmp_path), tmp_path / "embeddings", tmp_path / "pairs", tmp_path / "base")
    with pytest.raises(InputError, match=r"embeddings come from another image tower than the base's"):
        _load(world, "conclip", distractor_data=str(tmp_path))
    with pytest.raises(InputError, match="exist only as embeddings: set image_tower: frozen"):
        _load(world, "conclip", distractor_data=str(tmp_path), image_tower="trained")


@pytest.mark.parametrize("name", METHODS)
def test_all_methods_are_validated_on_the_same_pairs(name: str, world: World, held: set[str]) -> None:
    loaded = _load(world, name)
    held_out, held_rows = loaded.data.held_out, loaded.data.held_rows
    assert held_out is not None
    assert held_rows is not None
    captions = [world.captions[pair] for pair in world.captions if pair in held]
    assert held_out.captions == captions
    assert set(next(held_rows.epoch(0)).ids) <= held
    assert len(next(held_rows.epoch(0)).ids) == HELD_OUT
    table = PARAPHRASES.read(world.files.validated / "paraphrases.parquet").to_pandas()
    assert held_out.paraphrases is not None
    assert set(held_out.paraphrases) <= set(table["paraphrase_1"])


def test_the_gallery_is_of_queries_and_validation_images(world: World, held: set[str]) -> None:
    train, val = (
        ImageEmbeddings.open(world.files.embeddings, split, world.files.pairs / f"{split}.parquet")
        for split in ("train", "val")
    )
    own = [train.ids.index(pair) for pair in world.captions if pair in held]
    expected = np.concatenate([train.features[own], val.features])
    cached, loaded = _load(world, "caption_ft"), _load(world, "caption_ft", image_tower="trained")
    assert cached.data.held_out is not None
    assert (cached.data.held_out.gallery.numpy() == expected).all()
    held_out = loaded.data.held_out
    assert held_out is not None
    model = loaded.encoder.model
    np.testing.assert_allclose(held_out.vectors(model, "cpu"), expected, atol=1e-5)
    with torch.no_grad():
        model.visual.proj.mul_(torch.linspace(-1, 1, TINY["embed_dim"]))
    assert np.abs(held_out.vectors(model, "cpu") - expected).max() > 0.1


def test_semclips_published_rows_are_all_visited_with_their_own_texts(world: World) -> None:
    file = world.files.validated / "semclip_rows.parquet"
    texts = {"paraphrase": "published_paraphrase", "negation": "published_negation"}
    published = changed(world, files=changed(world.files, validated=file))
    loaded = _load(published, "semclip", {"validation_images": 0}, batch_size=8, **texts)
    names = ("caption", *texts.values())
    rows = SEMCLIP_ROWS.read(file).to_pandas()
    tokens = [loaded.encoder.tokenizer(rows[name].tolist()) for name in names]
    expected = sorted(tuple(map(bytes, row)) for row in zip(*tokens, strict=True))
    found = [
        tuple(map(bytes, row))
        for batch in loaded.source.epoch(0)
        for row in zip(*(np.asarray(batch.tokens[name]) for name in names), strict=True)
    ]
    assert len(rows) == SAMPLES * len(world.captions)
    assert sorted(found) == expected


def test_held_out_rows_follow_the_settings_and_all_inputs_are_named(world: World) -> None:
    """Which pairs are held out follows from the paraphrases, even for a method that reads none."""
    paraphrases, pairs = world.files.validated / "paraphrases.parquet", world.files.pairs / "train.parquet"
    rewrites = world.files.validated / "rewrites.parquet"
    assert _load(world, "clip_scratch").data.inputs == {"pairs": pairs, "paraphrases": paraphrases}
    assert _load(world, "rewrite_ft").data.inputs == {"rewrites": rewrites, "paraphrases": paraphrases}
    for count in (0, 9):
        loaded = _load(world, "caption_ft", {"validation_images": count})
        data = loaded.data
        assert data.held_out is None
        assert data.held_rows is None
        assert loaded.source.steps_per_epoch == (len(world.captions) - count) // 16


def _logged(world: World, folder: Path) -> World:
    """The world with weights of its training pairs from 1 on, and with one query for its first ten images."""
    shutil.copytree(world.files.pairs, folder / "pairs")
    path = folder / "pairs" / "train.parquet"
    rows = PAIRS.read(path).to_pylist()
    for place, row in enumerate(rows):
        row["weight"] = 1.0 + place
        if place < 10:
            row["caption"] = "red bus"
    PAIRS.write(path, pa.Table.from_pylist(rows, PAIRS.schema))
    files = changed(world.files, pairs=folder / "pairs", embeddings=folder / "embeddings")
    embed(world_settings(folder), files.embeddings, files.pairs, files.base)
    return changed(world, folder=folder, files=files)


def test_weights_reach_methods_or_are_named(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged = _logged(world, tmp_path)
    ids = list(logged.captions)
    for name, weighted in (("paraclip", True), ("semclip", False), ("joint", False)):
        loaded = _load(logged, name)
        data = loaded.data
        assert (f"{name} ignores the weights of" in capsys.readouterr().out) == (not weighted)
        assert data.inputs["pairs"] == logged.files.pairs / "train.parquet"
        assert data.held_rows is not None
        for batch in [*loaded.source.epoch(0), next(data.held_rows.epoch(0))]:
            places = np.array([ids.index(pair) for pair in batch.ids])
            assert batch.alike is not None
            one_query = (places < 10)[:, None] & (places < 10) & ~np.eye(len(places), dtype=bool)
            assert (batch.alike.numpy() == one_query).all()
            assert (batch.weights is not None) == weighted
            if batch.weights is not None:
                np.testing.assert_allclose(batch.weights.numpy(), (places + 1) / (places + 1).mean(), rtol=1e-6)


def test_shards_that_lose_weights_are_named(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged = _logged(world, tmp_path)
    write_shards(logged.files.pairs / "train.parquet", tmp_path / "shards", 30)
    train = {"shards": {"urls": str(tmp_path / "shards"), "columns": {"caption": "txt"}}}
    _load(logged, "caption_ft", train, image_tower="trained")
    assert "train.shards: shards have neither the weights of" in capsys.readouterr().out
    _load(world, "caption_ft", train, image_tower="trained")
    assert "shards" not in capsys.readouterr().out


def test_embeddings_of_another_image_tower_are_refused(world: World, tmp_path: Path) -> None:
    torch.manual_seed(9)
    Encoder.create("base", "tiny", TINY, "test").save(tmp_path / "base")
    files = changed(world.files, base=tmp_path / "base")
    with pytest.raises(InputError, match=r"was made by another image tower than .*base: run `dvc repro embed`"):
        _load(changed(world, files=files), "paraclip")
    # A tower that trains embeds for itself.
    assert _load(changed(world, files=files), "caption_ft", image_tower="trained").source.steps_per_epoch


def test_shards_are_streamed_without_held_out_pairs(world: World, held: set[str], tmp_path: Path) -> None:
    write_shards(world.files.pairs / "train.parquet", tmp_path, 30)
    train = {"shards": {"urls": str(tmp_path), "columns": {"rewrite": "txt"}, "max_error_share": 0}}
    loaded = _load(world, "rewrite_ft", train, image_tower="trained")
    assert isinstance(loaded.source, ShardSource)
    shown: set[str] = set()
    for batch in loaded.source.epoch(0):
        pairs = [name.rpartition("/")[2] for name in batch.ids]
        assert (set(batch.pixels), set(batch.tokens)) == ({"image"}, {"rewrite"})
        assert (batch.tokens["rewrite"] == loaded.encoder.tokenizer([world.captions[pair] for pair in pairs])).all()
        shown |= set(pairs)
    assert not shown & held
    assert len(shown) > len(world.captions) / 2
    assert not isinstance(_load(world, "rewrite_ft", train).source, ShardSource)
