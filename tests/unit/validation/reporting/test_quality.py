"""The report of caption quality: what is counted, how it is drawn, and that neither depends on the shards."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from components.validation.reporting.quality import Quality, lexical_distance

TEXTS = ["a small dog sits on grass", "red", "two cats on a large sofa", "a dog"]
SOURCES = ["a small dog on grass", "a red bus", "two large cats", "a dog"]
SIMILARITIES = [0.9, 0.4, math.nan, 1.0]
ACCEPTED = [True, False, True, False]


def _quality(shard: int) -> Quality:
    quality = Quality("rewrites")
    for start in range(0, len(TEXTS), shard):
        part = slice(start, start + shard)
        quality.add(TEXTS[part], SOURCES[part], SIMILARITIES[part], ACCEPTED[part])
    return quality


@pytest.mark.parametrize(
    ("text", "source", "distance"),
    [
        ("a dog", "A dog!", 0.0),
        ("a dog", "two cats", 1.0),
        ("a dog left of a cat", "a cat left of a dog", 2 / 6),
        ("a red dog", "a dog", 1 / 3),
        ("", "a dog", 1.0),
        ("", "", 0.0),
    ],
)
def test_the_lexical_distance_counts_words(text: str, source: str, distance: float) -> None:
    assert lexical_distance(text, source) == pytest.approx(distance)


def test_texts_are_counted_before_and_after_filtering() -> None:
    lengths, distances, similarities = (counts.sum(axis=1).tolist() for counts in _quality(4).counts)
    assert (lengths, distances) == ([4, 2], [4, 2])
    assert similarities == [3, 1], "a similarity that is missing is left out"
    words = np.flatnonzero(_quality(4).counts[0][0]) + 1
    assert words.tolist() == [1, 2, 6]


def test_values_beyond_the_axis_are_counted_at_its_end() -> None:
    quality = Quality("long")
    quality.add(["word " * 500, ""], ["a dog", "a dog"], [-0.9, 1.0000001], [True, True])
    assert [(counts[0, 0], counts[0, -1]) for counts in quality.counts] == [(1, 1), (0, 2), (1, 1)]


@pytest.mark.parametrize("shard", [1, 3])
def test_shards_make_no_difference(shard: int) -> None:
    for whole, parts in zip(_quality(4).counts, _quality(shard).counts, strict=True):
        assert whole.tolist() == parts.tolist()


def test_equal_counts_give_equal_bytes(tmp_path: Path) -> None:
    (one,), (other,) = _quality(4).write(tmp_path / "one"), _quality(1).write(tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


def test_the_picture_is_named_after_its_title_and_draws_both_in_three_histograms(tmp_path: Path) -> None:
    quality = Quality("paraphrases: paraphrase_2")
    quality.add(TEXTS, SOURCES, SIMILARITIES, ACCEPTED)
    (path,) = quality.write(tmp_path)
    assert path == tmp_path / "paraphrases_paraphrase_2.png"
    assert list(tmp_path.iterdir()) == [path]
    with Image.open(path) as picture:
        assert picture.width >= 1200
        assert "Software" not in picture.info
        pixels = np.asarray(picture.convert("RGB"))
    assert plt.get_fignums() == [], "no figure is left in pyplot"
    for colour in ((0xC3, 0xCA, 0xD4), (0x4A, 0x8F, 0xDD)):
        columns = np.flatnonzero((pixels == colour).all(axis=2).any(axis=0)) * 3 // pixels.shape[1]
        assert set(columns) == {0, 1, 2}


def test_a_table_without_rows_has_a_picture_too(tmp_path: Path) -> None:
    quality = Quality("nothing")
    quality.add([], [], [], [])
    (path,) = quality.write(tmp_path)
    assert path.stat().st_size > 0
