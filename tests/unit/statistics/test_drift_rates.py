"""How often a log is told to have drifted, with and without changed queries; docs/statistics.md."""

from __future__ import annotations

import numpy as np
import pytest

from components.encoders.adapter.encoder import Vectors
from components.evaluation.scoring.drift import USUAL, Drift, KnownTexts
from components.evaluation.scoring.intervals import difference_of_shares
from tests.support.simulated import draws, rate

WEEKS, DIM = 12, 32
SHAPES = ((100, 3, 5000), (300, 1, 1000), (300, 5, 300), (1000, 5, 1000), (6000, 5, 1000))


def _texts(generator: np.random.Generator, pictures: int, captions: int, kinds: Vectors, likeness: float) -> Vectors:
    """Unit vectors of texts `[texts, dim]`, whose cosine is the likeness where they are of one picture."""
    centres = kinds[generator.integers(len(kinds), size=pictures)] + 0.4 * generator.normal(size=(pictures, DIM))
    centres *= np.sqrt(DIM) / np.linalg.norm(centres, axis=1, keepdims=True)
    found = centres.repeat(captions, axis=0)
    found += np.sqrt(1 / likeness - 1) * generator.normal(size=found.shape)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def _is_due(reference: KnownTexts, log: Vectors) -> bool:
    share = reference.unlike(log) / len(log)
    more = difference_of_shares(share, len(log), USUAL, reference.held_out)
    return Drift(len(log), len(reference.texts), more, more, (0, 0), []).is_due


@pytest.mark.parametrize(
    ("pictures", "captions", "size", "likeness", "count"),
    [
        (100, 3, 300, 0.55, 6),
        (1000, 5, 1000, 0.89, 4),
        *(pytest.param(*shape, likeness, 100, marks=pytest.mark.slow) for shape in SHAPES for likeness in (0.55, 0.89)),
        *(pytest.param(100, 1, 300, likeness, 1000, marks=pytest.mark.slow) for likeness in (0.55, 0.89)),
    ],
)
def test_an_unchanged_log_rarely_drifts_in_twelve_looks_and_a_changed_one_does(
    pictures: int, captions: int, size: int, likeness: float, count: int
) -> None:
    """The log is of other pictures. A fifth of its changed queries are of things that no known text is about."""
    one, twelve, changed = [], [], []
    for generator in draws(count, pictures, captions, size, likeness):
        about = 1.4 * np.concatenate([generator.normal(size=(40, DIM // 2)), np.zeros((40, DIM // 2))], axis=1)
        known = _texts(generator, pictures, captions, about, likeness)
        names = [(str(row), str(row // captions)) for row in range(len(known))]
        reference = KnownTexts.of(lambda rows, known=known: known[[int(row) for row in rows]], names)
        looks = [_is_due(reference, _texts(generator, size, 1, about, likeness)) for _ in range(WEEKS)]
        other = _texts(generator, size // 5, 1, about[:, ::-1], likeness)
        mixed = np.concatenate([_texts(generator, size - len(other), 1, about, likeness), other])
        one, twelve, changed = [*one, looks[0]], [*twelve, any(looks)], [*changed, _is_due(reference, mixed)]
    what = f"{pictures} pictures of {captions} texts, cosine {likeness}, log of {size}"
    assert rate(f"drift without a change, one look: {what}", one).at_most(0.05)
    assert rate(f"drift without a change, one of {WEEKS} looks: {what}", twelve).at_most(0.05)
    assert rate(f"drift found, 20% changed: {what}", changed).within(0.8 if pictures >= 300 else 0.3, 1)
