"""Batches hold each image once, depend on seed, epoch and cursor only; crops do too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.training.rows.batches import (
    Batch,
    CachedFeatures,
    Crops,
    DecodedImages,
    Sampler,
    TableSource,
    Texts,
    groups_of,
)
from components.training.rows.tables import QueryLog


@given(st.lists(st.integers(0, 20), min_size=1, max_size=80), st.integers(1, 5), st.integers(0, 9), st.integers(0, 9))
def test_an_epoch_shows_no_group_twice(groups: list[int], batch_size: int, seed: int, epoch: int) -> None:
    sampler = Sampler(np.array(groups), batch_size, seed)
    batches = sampler.epoch(epoch)
    assert len(batches) == sampler.steps_per_epoch == len(set(groups)) // batch_size
    shown = [groups[row] for batch in batches for row in batch]
    assert len(shown) == len(set(shown)) == len(batches) * batch_size
    # The order of all releases, so that their checkpoints are resumed.
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(len(groups))
    order = rng.permutation(shuffled[np.unique(np.array(groups)[shuffled], return_index=True)[1]])
    assert [row for batch in batches for row in batch] == order[: len(shown)].tolist()


def test_every_row_is_drawn_some_time_and_an_epoch_visits_what_it_should() -> None:
    sampler, rows = Sampler(np.array([0, 0, 0, 1]), 2, 0), np.arange(50)
    assert {int(row) for epoch in range(40) for batch in sampler.epoch(epoch) for row in batch} == {0, 1, 2, 3}
    orders = {tuple(Sampler(rows, 50, seed).epoch(epoch)[0]) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4
    assert sorted(SHOWN[_visits(groups_of("images", SHOWN, [PAIRS, OTHERS]))]) == [4, 9]
    assert sorted(PAIRS[_visits(groups_of("pairs", SHOWN, [PAIRS]))]) == [4, 5, 9]
    assert _visits(groups_of("rows", SHOWN, [PAIRS])) == [0, 1, 2, 3, 4, 5]
    rows = _visits(groups_of("pairs", SHOWN, [PAIRS, OTHERS]))
    assert sorted(zip(PAIRS[rows], OTHERS[rows], strict=True)) == [(4, 1), (4, 2), (5, 1), (5, 2), (9, 1)]


SHOWN = np.array([4, 4, 4, 9, 9, 4])
PAIRS = np.array([4, 5, 5, 9, 9, 4])
OTHERS = np.array([1, 1, 2, 1, 1, 2])


def _visits(groups: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    return sorted(int(row) for batch in Sampler(groups, 1, 0).epoch(0) for row in batch)


@given(st.permutations(range(30)), st.integers(0, 5))
def test_one_caption_of_each_image_gives_the_same_batches_either_way(places: list[int], epoch: int) -> None:
    images = np.array(places)
    both = [Sampler(groups_of(visits, images, [images]), 7, 1).epoch(epoch) for visits in ("images", "pairs")]
    assert all((one == other).all() for one, other in zip(*both, strict=True))


ROWS, IMAGES, CONTEXT, DIM = 60, 70, 6, 4
COLUMNS = ("caption", "paraphrase", "rewrite")
SHARES = {"caption": 1.0, "paraphrase": 2.0, "rewrite": 5.0}
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(IMAGES, DIM)).astype(np.float32)
# A row's image is not at the row's own number, and every token says which row and column it is from.
PLACES = {"image": RNG.permutation(IMAGES)[:ROWS], "other_image": RNG.permutation(IMAGES)[:ROWS]}
NEIGHBOURS = np.stack([(np.arange(ROWS) + shift) % ROWS for shift in (7, 11, 13)], axis=1)


def _tokens(column: int) -> np.ndarray:  # type: ignore[type-arg]
    tokens = np.zeros((ROWS, CONTEXT), np.int32)
    tokens[:, 0], tokens[:, 1] = np.arange(ROWS), column
    return tokens


def _source(batch_size: int = 8, **changes: object) -> TableSource:
    options: dict[str, object] = {
        "sampler": Sampler(np.arange(ROWS), batch_size, 3),
        "columns": frozenset({"image", "caption"}),
        "names": [f"pair-{row}" for row in range(ROWS)],
        "texts": {name: Texts(_tokens(place), np.arange(ROWS) + 100 * place) for place, name in enumerate(COLUMNS)},
        "images": PLACES,
        "shown": CachedFeatures(FEATURES),
    }
    return TableSource(**(options | changes))  # type: ignore[arg-type]


EVERYTHING = {
    "columns": frozenset({"image", "caption", "drawn", "neighbour.image", "neighbour.paraphrase"}),
    "draws": {"drawn": SHARES},
    "neighbours": NEIGHBOURS,
}


def _rows(batch: Batch) -> list[int]:
    return [int(name.removeprefix("pair-")) for name in batch.ids]


def _same(one: Batch, other: Batch) -> bool:
    return (one.ids, one.cursor) == (other.ids, other.cursor) and all(
        np.array_equal(rows, getattr(other, kind)[name])
        for kind in ("tokens", "lengths", "features")
        for name, rows in getattr(one, kind).items()
    )


def test_lengths_of_unit_features_restore_the_raw_ones() -> None:
    norms = np.linalg.norm(FEATURES, axis=1)
    unit = (FEATURES / norms[:, None]).astype(np.float32)
    raw, restored = (next(source.epoch(0)) for source in (_source(), _source(shown=CachedFeatures(unit, norms))))
    torch.testing.assert_close(restored.features["image"], raw.features["image"])
    assert restored.features["image"].dtype == torch.float32
    assert not torch.allclose(
        next(_source(shown=CachedFeatures(unit)).epoch(0)).features["image"], raw.features["image"]
    )


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("cursor", range(8))
def test_an_epoch_goes_on_the_same_from_any_cursor(epoch: int, cursor: int) -> None:
    whole = list(_source(**EVERYTHING).epoch(epoch))
    rest = list(_source(**EVERYTHING).epoch(epoch, cursor))
    assert [batch.cursor for batch in whole] == list(range(1, 8))
    assert len(rest) == len(whole) - min(cursor, len(whole))
    assert all(_same(one, other) for one, other in zip(rest, whole[cursor:], strict=True))


def test_ranks_share_every_batch() -> None:
    queries, images = np.arange(ROWS) // 2, np.arange(ROWS)
    log = QueryLog(queries, images, csr_array((np.ones(ROWS, np.bool_), (images, queries))), np.arange(1.0, ROWS + 1))
    whole = list(_source(**EVERYTHING, log=log).epoch(1))
    shares = [list(_source(**EVERYTHING, log=log, world=World(rank, 4)).epoch(1)) for rank in range(4)]
    for place, batch in enumerate(whole):
        parts = [share[place] for share in shares]
        assert [name for part in parts for name in part.ids] == batch.ids
        assert {part.cursor for part in parts} == {batch.cursor}
        for kind in ("tokens", "features"):
            for name, rows in getattr(batch, kind).items():
                assert np.array_equal(np.concatenate([getattr(part, kind)[name] for part in parts]), rows)
        for fact in ("weights", "alike"):
            assert torch.equal(torch.cat([getattr(part, fact) for part in parts]), getattr(batch, fact))


def _drawn(source: TableSource, epoch: int) -> dict[int, int]:
    """Which column each row's text was drawn from."""
    found = {}
    for batch in source.epoch(epoch):
        rows, columns = batch.tokens["drawn"][:, 0], batch.tokens["drawn"][:, 1]
        assert rows.tolist() == _rows(batch)
        assert batch.lengths["drawn"].tolist() == (rows + 100 * columns).tolist()
        found.update(zip(rows.tolist(), columns.tolist(), strict=True))
    return found


def test_draws_follow_their_shares_independently_and_change_with_the_epoch() -> None:
    source = _source(1, columns=frozenset({"drawn"}), draws={"drawn": SHARES})
    epochs = [_drawn(source, epoch) for epoch in range(60)]
    assert epochs[0] != epochs[1]
    counts = Counter(column for found in epochs for column in found.values())
    total = ROWS * 60
    for place, share in enumerate(SHARES.values()):
        expected = total * share / sum(SHARES.values())
        # Five standard deviations of a binomial count.
        assert abs(counts[place] - expected) < 5 * np.sqrt(expected)
    both = {"drawn": SHARES, "also": SHARES}
    batches = list(_source(columns=frozenset(both), draws=both).epoch(0))
    one, other = (np.concatenate([batch.tokens[name][:, 1] for batch in batches]) for name in both)
    assert (one != other).any()
    source = _source(1, columns=frozenset({"drawn"}), draws={"drawn": {"caption": 0, "rewrite": 1, "paraphrase": 0}})
    assert set(_drawn(source, 0).values()) == {COLUMNS.index("rewrite")}


def test_a_neighbours_columns_are_all_of_the_same_neighbour() -> None:
    seen: dict[int, set[int]] = {row: set() for row in range(ROWS)}
    source = _source(**EVERYTHING)
    for epoch in range(12):
        for batch in source.epoch(epoch):
            neighbours = batch.tokens["neighbour.paraphrase"][:, 0]
            assert set(batch.tokens["neighbour.paraphrase"][:, 1]) == {1}
            assert (batch.features["neighbour.image"].numpy() == FEATURES[PLACES["image"][neighbours]]).all()
            for row, neighbour in zip(_rows(batch), neighbours.tolist(), strict=True):
                assert neighbour in NEIGHBOURS[row]
                seen[row].add(neighbour)
    assert sum(len(neighbours) == 3 for neighbours in seen.values()) > ROWS / 2


def test_too_few_rows_are_named_and_ranks_are_free_on_resume() -> None:
    with pytest.raises(InputError, match="toy visits 60 rows in an epoch, fewer than batch_size 61"):
        _source(61).check("toy")
    assert replace(_source(), world=World(1, 2)).describe() == _source().describe()


SIZE = 16
RAMP = torch.arange(SIZE, dtype=torch.uint8).expand(3, SIZE, SIZE) * 10


def test_a_crop_keeps_the_share_that_it_must_and_is_resized() -> None:
    found = Crops(0.5, 0).of(RAMP.expand(200, 3, SIZE, SIZE), [str(row) for row in range(200)], 0)
    assert found.shape == (200, 3, SIZE, SIZE)
    assert found.dtype == torch.uint8
    # Columns of the ramp that are seen, of 16: the box is at least 3/4 as wide as high.
    seen = (found[:, 0, 0].amax(dim=1).int() - found[:, 0, 0].amin(dim=1).int()) / 10 + 1
    assert float(seen.min()) >= SIZE * (0.5 * 3 / 4) ** 0.5 - 2
    assert len(set(seen.tolist())) > 3


def _pixels(epoch: int, cursor: int = 0, world: World | None = None, seed: int = 0) -> list[tuple[str, torch.Tensor]]:
    source = TableSource(
        sampler=Sampler(np.arange(8), 4, 0),
        columns=frozenset({"image", "neighbour.image"}),
        names=[str(row) for row in range(8)],
        texts={},
        images={"image": np.arange(8)},
        shown=DecodedImages(RAMP.expand(8, 3, SIZE, SIZE), Crops(0.5, seed)),
        neighbours=np.roll(np.arange(8), 1)[:, None],
        world=world or World(),
    )
    return [
        (str((int(name) - shift) % 8), row)
        for batch in source.epoch(epoch, cursor)
        for column, shift in (("image", 0), ("neighbour.image", 1))
        for name, row in zip(batch.ids, batch.pixels[column], strict=True)
    ]


def test_an_image_has_one_crop_an_epoch_wherever_it_is_and_whoever_has_it() -> None:
    whole = dict(_pixels(0))
    assert len(whole) == 8
    for found in (_pixels(0), _pixels(0, cursor=1), _pixels(0, world=World(0, 2)), _pixels(0, world=World(1, 2))):
        assert all(torch.equal(whole[name], pixels) for name, pixels in found)
    for other in (dict(_pixels(1)), dict(_pixels(0, seed=1))):
        assert any(not torch.equal(whole[name], other[name]) for name in whole)
