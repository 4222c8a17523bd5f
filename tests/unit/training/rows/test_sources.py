"""From rows with column names to a source: tokens, images and neighbours of the right rows, tokenised once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS
from components.core.tables.table import Table
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.tokens import ClipTokenizer, Tokens
from components.training.methods.contract.method import Neighbours
from components.training.rows import sources
from components.training.rows.batches import BatchPlan, CachedFeatures, DecodedImages, TableSource
from components.training.rows.sources import TableImages, cached_tokens, nearest, table_source
from tests.support.toy_world import drawing, sentence

COUNT, SIZE = 12, 16
IDS = [f"pair-{row}" for row in range(COUNT)]
IMAGE_IDS = [f"image-{row}" for row in range(COUNT)]
TOKENIZER = ClipTokenizer(24)


@pytest.fixture
def images(tmp_path: Path) -> TableImages:
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {
        "id": IDS,
        "image_id": IMAGE_IDS,
        "image": [drawing(rng) for _ in IDS],
        "caption": [sentence(rng) for _ in IDS],
        "facts": [None] * COUNT,
    }
    PAIRS.write(tmp_path / "train.parquet", columns)
    features = rng.normal(size=(COUNT, 5)).astype(np.float32)
    cached = CachedFeatures(features, np.ones(COUNT, np.float32))
    return TableImages(IDS, IMAGE_IDS, tmp_path / "train.parquet", Preparation(size=SIZE), cached, features)


# Two rows about the first pair, in another order than the images'.
ROWS = pd.DataFrame(
    {
        "id": [*reversed(IDS), IDS[0]],
        "image_id": [*reversed(IMAGE_IDS), IMAGE_IDS[0]],
        "other_id": [*IDS, IDS[5]],
        "other_image_id": [*IMAGE_IDS, IMAGE_IDS[5]],
        "caption": [f"caption of {pair}" for pair in [*reversed(IDS), IDS[0]]],
        "rewrite": [f"rewrite {row}" for row in range(COUNT + 1)],
    }
)


def _source(images: TableImages, columns: set[str], cache: Path, rows: int | None = None, **plan: Any) -> TableSource:
    return table_source(ROWS[:rows], images, BatchPlan(frozenset(columns), 4, **plan), TOKENIZER, cache / "tokens")


def test_texts_and_images_are_of_the_row_and_neighbours_searched_if_read(images: TableImages, tmp_path: Path) -> None:
    source = _source(images, {"image", "other_image", "caption"}, tmp_path)
    assert source.steps_per_epoch == COUNT // 4
    others = dict(zip(ROWS["id"][:COUNT], ROWS["other_id"][:COUNT], strict=True))
    assert images.similar is not None
    for batch in source.epoch(0):
        captions = TOKENIZER([f"caption of {pair}" for pair in batch.ids])
        assert (batch.tokens["caption"] == captions).all()
        assert (batch.lengths["caption"] == TOKENIZER.lengths(captions)).all()
        places = [IDS.index(pair) for pair in batch.ids]
        assert (batch.features["image"].numpy() == images.similar[places]).all()
        for pair, row in zip(batch.ids, batch.features["other_image"].numpy(), strict=True):
            allowed = {others[pair]} | ({IDS[5]} if pair == IDS[0] else set())
            assert any((row == images.similar[IDS.index(other)]).all() for other in allowed)
    assert _source(images, {"image", "caption"}, tmp_path).neighbours is None
    found = _source(images, {"image", "neighbour.caption"}, tmp_path).neighbours
    assert found is not None
    pairs = ROWS["id"].to_numpy()
    assert (pairs[found] != pairs[:, None]).all()


def test_pixels_are_read_row_by_row(images: TableImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the column has more than 2 GiB Arrow cannot take rows of it, see `Table.take`."""
    raw, whole = PAIRS.read(images.pairs, ["image"])["image"].to_pylist(), Table.read

    def read(table: Table, path: Path, columns: Sequence[str]) -> Any:
        assert "image" not in columns
        return whole(table, path, columns)

    monkeypatch.setattr(Table, "read", read)
    source = _source(replace(images, cached=None), {"image", "other_image"}, tmp_path, 4)
    for batch in source.epoch(0):
        assert torch.equal(
            batch.pixels["image"], Preparation(size=SIZE).decode([raw[IDS.index(pair)] for pair in batch.ids])
        )
        others = [ROWS["other_id"][ROWS["id"] == pair].iloc[0] for pair in batch.ids]
        assert torch.equal(
            batch.pixels["other_image"], Preparation(size=SIZE).decode([raw[IDS.index(pair)] for pair in others])
        )
    # Images of pairs in no column stay encoded.
    assert isinstance(source.shown, DecodedImages)
    assert len(source.shown.pixels) == 8 < COUNT


@pytest.mark.parametrize(
    ("changes", "plan", "message"),
    [
        ({"cached": None}, {}, "12 images of 16 pixels do not fit into memory: write shards"),
        ({"ids": IDS[1:], "image_ids": IMAGE_IDS[1:]}, {}, "pair pair-0 has no image embedding: run `dvc repro embed`"),
        ({}, {"world": World(0, 3)}, "batch_size 4 cannot be shared by 3 ranks"),
    ],
    ids=["memory", "unknown pair", "ranks"],
)
def test_rows_that_cannot_be_a_source_are_refused(
    changes: dict[str, Any],
    plan: dict[str, Any],
    message: str,
    images: TableImages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "_MOST_PIXELS", COUNT * 3 * SIZE**2 - 1)
    with pytest.raises(InputError, match=message):
        _source(replace(images, **changes), {"image", "caption"}, tmp_path, **plan)


NEIGHBOURS = Neighbours.count


def _unit(rows: int, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    found = np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def _at(*degrees: float) -> np.ndarray:  # type: ignore[type-arg]
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@given(st.lists(st.integers(0, 11), min_size=4, max_size=30).filter(lambda rows: len(set(rows)) > 3), st.integers(0, 5))
def test_rows_of_the_most_similar_other_images(images: list[int], seed: int) -> None:
    features = _unit(12, seed)
    found = nearest(features, np.array(images))
    assert found.shape == (len(images), NEIGHBOURS)
    for image, rows in zip(images, found, strict=True):
        others = sorted(set(images) - {image}, key=lambda other: -float(features[image] @ features[other]))
        assert [images[row] for row in rows] == others[:NEIGHBOURS]


def test_equal_features_are_neighbours_and_another_tables_nearest_by_hand() -> None:
    features = _unit(8)
    features[1:6] = features[0]
    found = nearest(features, np.arange(8))
    assert all(row not in rows for row, rows in enumerate(found.tolist()))
    assert all(set(rows) <= set(range(6)) for rows in found[:6].tolist())
    images = np.array([1, 0, 1])
    assert nearest(_at(10, 80), images, 1, ["x", "y"], GALLERY).tolist() == [[2], [0], [2]]
    assert nearest(_at(10, 80), images, 2, ["x", "y"], GALLERY).tolist() == [[2, 1], [0, 1], [2, 1]]


@pytest.mark.parametrize("images", [[0, 1, 2], [0, 0, 1, 1, 2, 2]])
def test_too_few_images_are_refused(images: list[int]) -> None:
    with pytest.raises(InputError, match="3 different images are too few to draw from 3 neighbours: add rows"):
        nearest(_unit(3), np.array(images))
    assert nearest(_unit(3), np.array(images), count=2).shape == (len(images), 2)


# The gallery's pictures stand at 0, 60, 90 and 90 degrees, the rows' own at 10 and 80.
GALLERY = CachedFeatures(_at(0, 60, 90, 90), np.array([1, 2, 3, 4], np.float32), ["a", "b", "c", "c"])


TEXTS = ["a red dog", "two cats", "", "a small boat near a tree", "sky"]


@pytest.mark.parametrize("block", [1, 2, 5, 4096])
def test_tokens_are_made_once_in_blocks(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BLOCK", block)
    monkeypatch.setattr(sources, "_SMALL", 3)
    tokenizer, calls = ClipTokenizer(12), list[str]()

    def tokenise(texts: Sequence[str]) -> Tokens:
        calls.extend(texts)
        return tokenizer(texts)

    for _ in range(2):
        found = cached_tokens(TEXTS, tokenise, 12, "clip-bpe", tmp_path)
        assert (np.asarray(found) == tokenizer(TEXTS)).all()
    assert calls == TEXTS
    assert isinstance(found, np.memmap)


@pytest.mark.parametrize("size", [0, 60, -4])
def test_a_damaged_file_is_named(tmp_path: Path, size: int) -> None:
    cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=rf"{path.name} is damaged \(.*\): delete it and run the stage again"):
        cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)


def test_tokens_have_own_files_and_a_failure_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BLOCK", 2)
    tokenizer, calls = ClipTokenizer(12), iter([True, False])

    def tokenise(texts: Sequence[str]) -> Tokens:
        if not next(calls):
            raise KeyboardInterrupt
        return tokenizer(texts)

    with pytest.raises(KeyboardInterrupt):
        cached_tokens(TEXTS, tokenise, 12, "clip-bpe", tmp_path)
    assert not list(tmp_path.iterdir())
    assert (np.asarray(cached_tokens(TEXTS, tokenizer, 12, "clip-bpe", tmp_path)) == tokenizer(TEXTS)).all()
    cached_tokens(TEXTS, ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    cached_tokens(TEXTS, ClipTokenizer(12), 12, "wordpiece", tmp_path)
    assert cached_tokens(TEXTS, ClipTokenizer(9), 9, "clip-bpe", tmp_path).shape == (5, 9)
    cached_tokens([*TEXTS[1:], TEXTS[0]], ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    # The same letters, divided otherwise.
    cached_tokens(["a red", "dog"], ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    cached_tokens(["a", "red dog"], ClipTokenizer(12), 12, "clip-bpe", tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
