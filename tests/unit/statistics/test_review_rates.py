"""How often reviews pass a share that the test queries do not have, with a look after each; docs/statistics.md."""

from __future__ import annotations

import numpy as np
import pytest

from components.core.compute.metrics import Indices, Reals
from components.evaluation.scoring.intervals import share_sequence
from components.registry.reviews import FEWEST_PEOPLE, Review, reviewed
from tests.support.simulated import EFFORTS, draws, rate

BOUND, READ, MOST = 0.9, 30, 900


@pytest.fixture(scope="module")
def enough() -> Indices:
    """Of so many reviews, the least right ones that pass `[reviews]`; more than all where none do."""
    found = np.arange(MOST + 1) + 1
    for size in range(20, MOST + 1):
        right = found[size - 1] if size > 20 else 20
        while right <= size and share_sequence((np.arange(size) < right) * 1.0).low < BOUND:
            right += 1
        found[size] = right
    return found


def _passes(hits: Reals, enough: Indices, people: Indices | None = None) -> bool:
    """Whether reviews pass at any look, people as clusters where they are given."""
    sizes = np.arange(1, len(hits) + 1)
    looks = sizes[(hits.cumsum() >= enough[sizes]) & (sizes >= 20)]
    if people is None:
        return bool(len(looks))
    looks = looks[[len(np.unique(people[:look])) >= FEWEST_PEOPLE for look in looks]]
    return any(share_sequence(hits[:look], people[:look]).low >= BOUND for look in looks[::5])


def _shares(generator: np.random.Generator, people: int, spread: float) -> Reals:
    first, second = np.array([BOUND, 1 - BOUND]) * (BOUND * (1 - BOUND) / spread**2 - 1)
    return generator.beta(first, second, people)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("share", [0.8, BOUND])
def test_a_share_at_the_bound_passes_a_look_in_at_most_five_percent(share: float, effort: int, enough: Indices) -> None:
    found = [_passes((generator.random(500) < share) * 1.0, enough) for generator in draws(2000 * effort, share)]
    assert rate(f"reviews pass: {share:.0%} right, a look after each of 500", found).at_most(0.05)


@pytest.mark.parametrize(("share", "read", "least"), [(0.97, 200, 0.8), (0.99, 100, 0.9), (0.95, 500, 0.8)])
def test_a_share_above_the_bound_passes(share: float, read: int, least: float, enough: Indices) -> None:
    found = [_passes((generator.random(read) < share) * 1.0, enough) for generator in draws(1000, share)]
    assert rate(f"reviews pass: {share:.0%} right, up to {read} read", found).share >= least


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("spread", [0.1, 0.2])
@pytest.mark.parametrize("in_turns", [True, False])
@pytest.mark.parametrize("people", [2, 10, 30])
def test_people_who_differ_pass_a_share_at_the_bound_in_at_most_five_percent(
    people: int, in_turns: bool, spread: float, effort: int, enough: Indices
) -> None:
    """Thirty people speak for others. Fewer do not: the share is that of their own verdicts, as the output says."""
    owners = np.tile(np.arange(people), READ) if in_turns else np.repeat(np.arange(people), READ)
    owners, found, own = owners[:MOST], [], []
    for generator in draws(100 * effort, people, spread):
        shares = _shares(generator, people, spread)[owners]
        hits = (generator.random(len(owners)) < shares) * 1.0
        found.append(_passes(hits, enough, owners if people >= FEWEST_PEOPLE else None))
        true = shares.cumsum() / np.arange(1, len(shares) + 1)
        sizes = np.arange(1, len(hits) + 1)
        own.append(bool(((hits.cumsum() >= enough[sizes]) & (true <= BOUND)).any()))
    what = f"{people} people of {READ} reviews, sd {spread}, {'in turns' if in_turns else 'one after the other'}"
    others = rate(f"reviews pass: {what}", found)
    assert rate(f"reviews pass below the people's own share: {what}", own).at_most(0.05)
    assert people < FEWEST_PEOPLE or others.at_most(0.05)


def test_people_are_clusters_from_thirty_on_and_named_below() -> None:
    """One in six finds half of the queries wrong, the others none."""
    for people, apart, words in ((1, 0, "as one person judges"), (29, 0, "(fewer than 30"), (30, 1, "30 people judge")):
        given = {}
        for number in range(300):
            user = number % people
            verdict = "wrong" if user % 6 == 5 and number // people % 2 else "right"
            key = ("swap", f"caption {number}", "query")
            texts = dict(zip(("kind", "caption", "query"), key, strict=True))
            given[key] = Review(user=str(user), test_set="t", verdict=verdict, **texts)
        found = reviewed(given)[-1]
        alone = share_sequence((np.arange(300) < found.right) * 1.0)
        assert words in str(found)
        assert (found.low < alone.low - 0.01) == bool(apart)
