"""What a task is asked about: captions in order, pairs of them by seed, or earlier answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions import sources
from components.captions.sources import Source, read_answers, read_caption_pairs, read_captions, short_captions
from components.records import GENERATIONS, PAIRS


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    captions = ["a dog", "dog", "two cats", "a " * 16, "red bus", "blue bus"]
    count = len(captions)
    columns = {"id": [f"p{n}" for n in range(count)], "image": [b"i"] * count, "caption": captions}
    PAIRS.write(tmp_path / "pairs.parquet", columns | {"facts": [None] * count})
    return tmp_path / "pairs.parquet"


def test_captions_in_order_without_those_refused(pairs: Path) -> None:
    found = read_captions(pairs, short_captions, 3, 0)
    assert found == [
        Source("p0", 0, {"caption": "a dog"}),
        Source("p2", 0, {"caption": "two cats"}),
        Source("p4", 0, {"caption": "red bus"}),
    ]


def test_pairs_are_of_the_same_captions(pairs: Path) -> None:
    found = read_caption_pairs(pairs, short_captions, 3, 0)
    assert [source.id for source in found] == ["p0", "p2", "p4"]
    captions = {source.id: source.inputs["caption"] for source in found}
    for source in found:
        assert source.other_id in captions
        assert source.inputs["other_caption"] == captions[str(source.other_id)]


@given(count=st.integers(2, 40), seed=st.integers(0, 1000))
def test_no_caption_meets_itself_and_the_seed_decides(count: int, seed: int) -> None:
    pool = [Source(str(number), 0, {"caption": f"caption {number}"}) for number in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "read_captions", lambda *_: pool)
        first, again = (read_caption_pairs(Path("x"), short_captions, count, seed) for _ in range(2))
    assert first == again
    assert all(source.other_id != source.id for source in first)
    assert len(first) == count


def test_pairs_differ_between_seeds_and_meet_everyone(pairs: Path) -> None:
    met = {source.other_id for seed in range(50) for source in read_caption_pairs(pairs, short_captions, 4, seed)}
    assert met == {"p0", "p2", "p4", "p5"}


def test_one_caption_alone_makes_no_pair(pairs: Path) -> None:
    assert read_caption_pairs(pairs, short_captions, 1, 0) == []


def test_accepted_answers_of_the_first_captions(tmp_path: Path) -> None:
    rows = [
        ("p0", 0, True, "A."),
        ("p0", 1, False, None),
        ("p1", 0, True, "B."),
        ("p2", 0, True, "C."),
        ("p1", 1, True, "D."),
    ]
    ids, samples, accepted, texts = zip(*rows, strict=True)
    columns: dict[str, list[object]] = {
        "id": list(ids), "sample": list(samples), "source": ["s"] * 5, "key": ["k"] * 5, "accepted": list(accepted),
        "text": list(texts), "reason": [None] * 5, "other_id": [None] * 5, "other_source": [None] * 5,
    }  # fmt: skip
    GENERATIONS.write(tmp_path / "answers.parquet", columns)
    found = read_answers("first")(tmp_path / "answers.parquet", lambda _: None, 2, 0)
    assert found == [
        Source("p0", 0, {"first": "A."}),
        Source("p1", 0, {"first": "B."}),
        Source("p1", 1, {"first": "D."}),
    ]
    assert read_answers("first")(tmp_path / "answers.parquet", lambda _: "refused", 2, 0) == []
