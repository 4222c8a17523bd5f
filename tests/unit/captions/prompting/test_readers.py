"""Inputs of tasks: captions, pairs by seed, earlier answers, classes and queries, each in a fixed order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions.prompting.readers import (
    SHOWN,
    Ask,
    anything,
    ordered_pairs,
    paired,
    read_answers,
    read_caption_pairs,
    read_captions,
    read_class_pairs,
    read_classes,
    read_queries,
    short_captions,
)
from components.captions.prompting.request import InputRow, PromptPicture
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.records import CAPTION_QUERIES, GENERATIONS, LABELS, PAIRS

CAPTIONS = ["a dog", "dog", "two cats", "a " * 16, "red bus", "blue bus"]


def _write_pairs(
    path: Path, captions: list[str], ids: list[str] | None = None, images: list[bytes] | None = None
) -> Path:
    ids = ids or [f"p{number}" for number in range(len(captions))]
    columns = {"id": ids, "image_id": [name.split("-")[0] for name in ids], "caption": captions}
    PAIRS.write(path, columns | {"image": images or [b"i"] * len(ids), "facts": [None] * len(ids)})
    return path


@pytest.fixture
def pairs(tmp_path: Path, png: Any) -> Path:
    images = [png((number, 0, 0)) for number in range(len(CAPTIONS))]
    return _write_pairs(tmp_path / "pairs.parquet", CAPTIONS, images=images)


def _write_answers(path: Path, rows: list[dict[str, Any]]) -> Path:
    usual = {"sample": 0, "source": "s", "key": "k", "accepted": True, "text": "A."}
    filled = [dict.fromkeys(GENERATIONS.schema.names) | usual | row for row in rows]
    GENERATIONS.write(path, pa.Table.from_pylist(filled, GENERATIONS.schema))
    return path


def test_captions_in_order_and_the_reasons_of_those_skipped(pairs: Path) -> None:
    ask = Ask(3)
    found = list(read_captions(pairs, short_captions, ask))
    assert found == [InputRow(f"p{place}", 0, {"caption": CAPTIONS[place]}) for place in (0, 2, 4)]
    assert ask.skipped == {"caption has fewer than 2 words": 1, "caption has more than 15 words": 1}
    early = Ask(2)
    list(read_captions(pairs, short_captions, early))
    assert early.skipped == {"caption has fewer than 2 words": 1}


def test_pairs_differ_between_seeds_and_all_have_both_directions(pairs: Path) -> None:
    met = {s.other_id for seed in range(50) for s in read_caption_pairs(pairs, short_captions, Ask(4, seed))}
    assert met == {"p0", "p2", "p4", "p5"}
    found = list(read_caption_pairs(pairs, short_captions, Ask(3, pairs=6)))
    shown = [(source.id, source.sample, source.other_id) for source in found]
    assert shown[:3] == [("p0", 0, "p2"), ("p0", 1, "p4"), ("p2", 0, "p0")]
    assert shown[3:] == [("p2", 1, "p4"), ("p4", 0, "p0"), ("p4", 1, "p2")]


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Six images with five captions each, every second too short; the first image comes again at the end."""
    places = [divmod(row, 5) for row in range(30)]
    captions = [f"picture {image} {place}" if place % 2 == 0 else "short" for image, place in places]
    ids = [f"p{image}-{place}" for image, place in places]
    return _write_pairs(tmp_path / "several.parquet", [*captions, "picture 0 again"], [*ids, "p0-5"])


def test_a_task_can_ask_about_one_caption_of_each_image(several: Path) -> None:
    ask = Ask(5, one_per_image=True)
    found = list(read_captions(several, short_captions, ask))
    assert [source.id[:2] for source in found] == ["p0", "p1", "p2", "p3", "p4"]
    assert ask.skipped == {"caption has fewer than 2 words": 10}
    assert len(list(read_captions(several, short_captions, Ask(9, one_per_image=True)))) == 6
    drawn = {s.id for seed in range(40) for s in read_captions(several, short_captions, Ask(1, seed, None, True))}
    assert drawn == {"p0-0", "p0-2", "p0-4"}


@pytest.mark.parametrize("pairs", [None, 30])
def test_no_image_is_compared_with_itself(several: Path, pairs: int | None) -> None:
    found = list(read_caption_pairs(several, short_captions, Ask(6, pairs=pairs)))
    assert len(found) == (pairs or 6)
    assert all(source.id[:2] != str(source.other_id)[:2] for source in found)
    assert len({source.id for source in found}) == 6
    captions = {source.id for source in read_captions(several, short_captions, Ask(6, one_per_image=True))}
    assert {source.id for source in found} | {source.other_id for source in found} == captions


def test_accepted_answers_of_the_first_captions_with_their_captions(tmp_path: Path) -> None:
    answers = [("p0", 0, "A."), ("p0", 1, None), ("p1", 0, "B."), ("p1", 1, "D."), ("p2", 0, "C.")]
    rows = [{"id": pair, "sample": n, "accepted": text is not None, "text": text} for pair, n, text in answers]
    path, ask = _write_answers(tmp_path / "answers.parquet", rows), Ask(2)
    found = list(read_answers("first")(path, anything, ask))
    wanted = [("p0", 0, "A."), ("p1", 0, "B."), ("p1", 1, "D.")]
    assert found == [InputRow(pair, sample, {"first": text}) for pair, sample, text in wanted]
    assert ask.skipped == {"no usable answer to ask about": 1}
    refusing = Ask(2)
    assert list(read_answers("first")(path, lambda _: "too dull", refusing)) == []
    assert refusing.skipped["too dull"] == 3
    rows: list[dict[str, Any]] = [{"id": "p0", "source": "a", "other_id": "p1", "other_source": "b", "text": "Not b."}]
    path = _write_answers(tmp_path / "answers.parquet", rows)
    read = read_answers("difference", caption="source", other_caption="other_source")
    (found,) = read(path, anything, Ask(5))
    assert found == InputRow("p0", 0, {"difference": "Not b.", "caption": "a", "other_caption": "b"}, "p1")


def test_pictures_are_of_captions_pairs_and_answers_or_named(pairs: Path, png: Any, tmp_path: Path) -> None:
    first = PromptPicture(png((0, 0, 0)), "image/png")
    (source,) = read_captions(pairs, short_captions, Ask(1, pictures=True))
    assert source.pictures == (first,)
    assert set(source.inputs) == {"caption", SHOWN}
    one, *_ = read_caption_pairs(pairs, short_captions, Ask(3, pairs=6, pictures=True))
    assert one.pictures == (first, PromptPicture(png((2, 0, 0)), "image/png"))
    assert set(one.inputs) == {"caption", "other_caption", SHOWN}
    rows: list[dict[str, Any]] = [{"id": "p4", "other_id": "p0", "text": "x"}, {"id": "p5", "text": "y"}]
    rows.append({"id": "p1", "accepted": False, "text": None})
    path, ask = _write_answers(tmp_path / "answers.parquet", rows), Ask(5, pictures=True, images=pairs)
    two, one = read_answers("difference")(path, anything, ask)
    assert [picture.data for picture in two.pictures] == [png((4, 0, 0)), png((0, 0, 0))]
    assert [picture.data for picture in one.pictures] == [png((5, 0, 0))]
    assert SHOWN in two.inputs
    assert ask.skipped.total() == 1, "counted once although the rows are read twice"
    path = _write_answers(tmp_path / "answers.parquet", [{"id": "gone"}])
    with pytest.raises(InputError, match=r"pairs\.parquet has no pair gone to show"):
        list(read_answers("difference")(path, anything, Ask(5, pictures=True, images=pairs)))
    _write_pairs(pairs, ["a dog"], images=[b"no image"])
    with pytest.raises(InputError, match=r"pairs\.parquet: pair p0 has an unreadable image"):
        list(read_captions(pairs, short_captions, Ask(5, pictures=True)))


@pytest.mark.parametrize("reader", [read_captions, read_caption_pairs, read_answers("first")])
def test_a_missing_or_damaged_table_is_named(tmp_path: Path, reader: Any) -> None:
    path = tmp_path / "table.parquet"
    with pytest.raises(InputError, match=r"table\.parquet is missing"):
        list(reader(path, anything, Ask(3)))
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"table\.parquet cannot be read as a '\w+' table"):
        list(reader(path, anything, Ask(3)))


def test_words_are_counted_as_a_prompt_quotes_them_and_nothing_is_skipped(tmp_path: Path) -> None:
    captions = {
        "<person> dog": False,
        "\u200b \u200b": False,
        "dog .": False,
        "a dog .": True,
        "one two three four five six seven eight nine ten , 11 12 13 14 ( 15 ) .": True,
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 & 15 .": False,
    }
    path, ask = _write_pairs(tmp_path / "pairs.parquet", list(captions)), Ask(9)
    found = [source.inputs["caption"] for source in read_captions(path, short_captions, ask)]
    assert found == [caption for caption, taken in captions.items() if taken]
    assert ask.skipped.total() == 4
    path = _write_pairs(tmp_path / "pairs.parquet", ["\u200b", "<person>", "dog", "a " * 60], list("abcd"))
    ask = Ask(9)
    assert [source.id for source in read_captions(path, anything, ask)] == ["c", "d"]
    assert ask.skipped == {"there is no text to ask about": 2}


def _pool(count: int) -> list[InputRow]:
    return [InputRow(str(number), 0, {"caption": f"caption {number}"}) for number in range(count)]


@given(count=st.integers(0, 40), wanted=st.integers(1, 2000), seed=st.integers(0, 1000))
def test_ordered_pairs_are_different_and_never_of_one_alone(count: int, wanted: int, seed: int) -> None:
    found = list(ordered_pairs(count, wanted, seed))
    assert len(found) == len(set(found)) == min(wanted, count * (count - 1))
    assert found == sorted(found) == list(ordered_pairs(count, wanted, seed))
    assert all(first != second and 0 <= min(first, second) <= max(first, second) < count for first, second in found)


def test_every_pair_is_drawn_as_often_as_any_other() -> None:
    for wanted in (3, 9):
        drawn = Counter(pair for seed in range(1500) for pair in ordered_pairs(4, wanted, seed))
        expected = 1500 * wanted / 12
        assert len(drawn) == 12
        assert max(abs(count - expected) for count in drawn.values()) < 0.15 * expected


def test_a_pair_has_the_inputs_of_both_and_its_stored_partner() -> None:
    rng = random.Random("caption pairs 0")
    expected = [str((place + rng.randrange(1, 1200)) % 1200) for place in range(1200)]
    found = list(paired(_pool(1200), None, 0))
    assert [source.other_id for source in found] == expected
    assert [(source.id, source.sample) for source in found] == [(str(place), 0) for place in range(1200)]
    rows = [InputRow(pair, 0, {"name": name}) for pair, name in (("a", "one"), ("b", "two"), ("c", "three"))]
    first, *others = paired(rows, 6, 0)
    assert first == InputRow("a", 0, {"name": "one", "other_name": "two"}, "b")
    assert [(source.id, source.sample) for source in others] == [("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]


NAMES = ["dog", "cat", "dog", "ice cream", "bee", "cat"]


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.parquet"
    LABELS.write(path, {"image_id": [f"i{number}" for number in range(len(NAMES))], "label": list(NAMES)})
    return path


def test_classes_come_in_the_order_of_names_and_in_pairs_by_seed(labels: Path) -> None:
    found = list(read_classes(labels, anything, Ask(9)))
    names = ("bee", "cat", "dog", "ice cream")
    assert found == [InputRow(content_hash(name), 0, {"class_name": name}) for name in names]
    assert list(read_classes(labels, anything, Ask(2))) == found[:2]
    ask = Ask(9)
    assert list(read_classes(labels, lambda one: "no bees" if one["class_name"] == "bee" else None, ask)) == found[1:]
    assert ask.skipped == {"no bees": 1}
    found = list(read_class_pairs(labels, anything, Ask(9, pairs=12)))
    names = [(source.inputs["class_name"], source.inputs["other_class_name"]) for source in found]
    assert len(set(names)) == 12
    assert names[:3] == [("bee", "cat"), ("bee", "dog"), ("bee", "ice cream")]
    assert [source.sample for source in found[:4]] == [0, 1, 2, 0]
    assert all(source.id == content_hash(name) for source, (name, _) in zip(found, names, strict=True))
    assert all(source.other_id == content_hash(name) for source, (_, name) in zip(found, names, strict=True))
    drawn = [[source.inputs for source in read_class_pairs(labels, anything, Ask(9, seed, 3))] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_lines_name_classes_pairs_and_queries(tmp_path: Path) -> None:
    """As `cliptune evaluate` writes them: a folder for each encoder, whose pairs may be the same."""
    for encoder, lines in (("base", "crab\tlobster\nbee\tcat\n"), ("mine", "crab\tlobster\ncrab\tbee\n")):
        path = tmp_path / "pairs" / encoder / "zero_shot.tsv"
        path.parent.mkdir(parents=True)
        path.write_text(lines)
    found = list(read_class_pairs(tmp_path / "pairs", anything, Ask(1, pairs=1)))
    assert found == [
        InputRow(content_hash(one), sample, {"class_name": one, "other_class_name": other}, content_hash(other))
        for one, sample, other in (("bee", 0, "cat"), ("crab", 0, "bee"), ("crab", 1, "lobster"))
    ]
    names = tmp_path / "names.tsv"
    names.write_text("a dog\nCaf\u00e9\u2028bar\na dog\n")
    classes = [source.inputs["class_name"] for source in read_classes(names, anything, Ask(9))]
    assert classes == ["Caf\u00e9\u2028bar", "a dog"]
    queries = list(read_queries(names, anything, Ask(9)))
    assert queries == [InputRow(content_hash(text), 0, {"query": text}) for text in ("a dog", "Caf\u00e9\u2028bar")]
    names.write_text("one\ttwo\n")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("names.tsv", r"names.tsv: line 1 does not have 1 texts separated by tabs"),
        ("absent", r"absent is missing or damaged .*run `cliptune evaluate --overwrite`"),
        ("empty", r"empty has no .tsv file: run `cliptune evaluate` on the benchmark"),
    ):
        with pytest.raises(InputError, match=message):
            list(read_classes(tmp_path / name, anything, Ask(9)))


def test_only_plain_queries_are_read_and_those_of_an_image_are_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "queries.parquet"
    ids, texts = ["i0", "i0", "i1", "i0"], ["A dog.", "dog.png", "A cat.", "Dog!"]
    registers = ["plain", "alt_text", "plain", "plain"]
    CAPTION_QUERIES.write(path, {"image_id": ids, "text": texts, "register": registers})
    wanted = [("i0", 0, "A dog."), ("i1", 0, "A cat."), ("i0", 1, "Dog!")]
    found = list(read_queries(path, anything, Ask(9)))
    assert found == [InputRow(image, sample, {"query": text}) for image, sample, text in wanted]
    assert len(list(read_queries(path, anything, Ask(2)))) == 2
