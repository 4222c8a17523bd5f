"""From rows with column names to a source: tokens, images and neighbours of the right rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.records import PAIRS
from components.encoders.adapter.images import decode
from components.encoders.adapter.tokens import ClipTokenizer
from components.training.rows import sources
from components.training.rows.batches import TableSource
from components.training.rows.sources import Images, Wanted, table_source
from tests.support.toy_world import drawing, sentence

COUNT, SIZE = 12, 16
IDS = [f"pair-{row}" for row in range(COUNT)]
IMAGE_IDS = [f"image-{row}" for row in range(COUNT)]
TOKENIZER = ClipTokenizer(24)


@pytest.fixture
def images(tmp_path: Path) -> Images:
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
    return Images(IDS, IMAGE_IDS, tmp_path / "train.parquet", SIZE, features, np.ones(COUNT, np.float32), features)


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


def _source(images: Images, wanted: Wanted, cache: Path, **changes: Any) -> TableSource:
    return table_source(ROWS, wanted, images, TOKENIZER, 4, 0, cache / "tokens", **changes)


def test_texts_and_images_are_those_of_the_row(images: Images, tmp_path: Path) -> None:
    source = _source(images, Wanted(frozenset({"image", "other_image", "caption"}), {}), tmp_path)
    assert source.steps_per_epoch == COUNT // 4
    others = dict(zip(ROWS["id"][:COUNT], ROWS["other_id"][:COUNT], strict=True))
    assert images.features is not None
    for batch in source.epoch(0):
        captions = TOKENIZER([f"caption of {pair}" for pair in batch.ids])
        assert (batch.tokens["caption"] == captions).all()
        assert (batch.lengths["caption"] == TOKENIZER.lengths(captions)).all()
        places = [IDS.index(pair) for pair in batch.ids]
        assert (batch.features["image"].numpy() == images.features[places]).all()
        for pair, row in zip(batch.ids, batch.features["other_image"].numpy(), strict=True):
            allowed = {others[pair]} | ({IDS[5]} if pair == IDS[0] else set())
            assert any((row == images.features[IDS.index(other)]).all() for other in allowed)


def test_made_up_columns_need_the_columns_they_are_drawn_from() -> None:
    wanted = Wanted(frozenset({"image", "drawn"}), {"drawn": {"caption": 0.5, "rewrite": 0.5}})
    assert wanted.joined == {"image", "caption", "rewrite"}


def test_drawn_texts_are_one_of_the_rows_own(images: Images, tmp_path: Path) -> None:
    wanted = Wanted(frozenset({"image", "drawn"}), {"drawn": {"caption": 0.5, "rewrite": 0.5}})
    kinds = set()
    for batch in _source(images, wanted, tmp_path).epoch(0):
        assert set(batch.tokens) == {"drawn"}
        for pair, tokens in zip(batch.ids, batch.tokens["drawn"], strict=True):
            rows = ROWS[ROWS["id"] == pair]
            allowed = {(name, text) for name in ("caption", "rewrite") for text in rows[name]}
            kinds |= {name for name, text in allowed if (TOKENIZER([text])[0] == tokens).all()}
            assert any((TOKENIZER([text])[0] == tokens).all() for _, text in allowed)
    assert kinds == {"caption", "rewrite"}


def test_neighbours_are_only_looked_for_when_a_column_asks(images: Images, tmp_path: Path) -> None:
    assert _source(images, Wanted(frozenset({"image", "caption"}), {}), tmp_path).neighbours is None
    found = _source(images, Wanted(frozenset({"image", "neighbour.caption"}), {}), tmp_path).neighbours
    assert found is not None
    pairs = ROWS["id"].to_numpy()
    assert (pairs[found] != pairs[:, None]).all()


def test_images_are_decoded_where_the_image_tower_trains(images: Images, tmp_path: Path) -> None:
    pixels = Images(IDS, IMAGE_IDS, images.pairs, SIZE)
    raw = PAIRS.read(images.pairs, ["image"])["image"].to_pylist()
    source = table_source(ROWS[:4], Wanted(frozenset({"image", "other_image"}), {}), pixels, TOKENIZER, 4, 0, tmp_path)
    for batch in source.epoch(0):
        expected = decode([raw[IDS.index(pair)] for pair in batch.ids], SIZE)
        assert torch.equal(batch.pixels["image"], expected)
        others = [ROWS["other_id"][ROWS["id"] == pair].iloc[0] for pair in batch.ids]
        assert torch.equal(batch.pixels["other_image"], decode([raw[IDS.index(pair)] for pair in others], SIZE))
    # Pairs that are shown neither as the one nor as the other stay encoded.
    assert source.pixels is not None
    assert len(source.pixels) == 8 < COUNT


def test_more_images_than_memory_holds_are_refused(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MOST_PIXELS", COUNT * 3 * SIZE**2 - 1)
    with pytest.raises(InputError, match="12 images of 16 pixels do not fit into memory: write shards"):
        _source(Images(IDS, IMAGE_IDS, images.pairs, SIZE), Wanted(frozenset({"image", "caption"}), {}), tmp_path)


def test_a_pair_without_an_image_is_named(images: Images, tmp_path: Path) -> None:
    few = Images(IDS[1:], IMAGE_IDS[1:], images.pairs, SIZE, images.features)
    with pytest.raises(InputError, match="pair pair-0 has no image embedding: run `dvc repro embed`"):
        _source(few, Wanted(frozenset({"image", "caption"}), {}), tmp_path)


def test_a_batch_that_ranks_cannot_share_is_refused(images: Images, tmp_path: Path) -> None:
    wanted = Wanted(frozenset({"image", "caption"}), {})
    with pytest.raises(InputError, match="batch_size 4 cannot be shared by 3 ranks"):
        _source(images, wanted, tmp_path, world=World(0, 3))
    shares = [_source(images, wanted, tmp_path, world=World(rank, 2)) for rank in range(2)]
    for one, other in zip(*(share.epoch(0) for share in shares), strict=True):
        assert len(one.ids) == len(other.ids) == 2
        assert not set(one.ids) & set(other.ids)
