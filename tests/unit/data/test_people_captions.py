"""Tables made of several people's captions and experts' ratings; captions made of fields."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import (
    CAPTION_RATINGS,
    NEGATION_QUERIES,
    PARAPHRASE_QUERIES,
    PEOPLE_PARAPHRASES,
    SWAPS,
)
from components.data.people_captions import (
    CUES,
    attributes_exchanged,
    evaluation_tables,
    negated,
    paraphrase_rows,
    relation_turned,
    roles_exchanged,
)
from components.data.sources.flickr import RATINGS, caption_ratings
from components.data.text_template import TextTemplate
from components.training.checks import check
from components.training.rows.tables import join_rows
from tests.unit.data.sources.published_folders import COUNTS, write_flickr8k
from tests.unit.data.sources.reading import prepare_settings, prepared

CAPTIONS_OF = {
    "one": ["A dog is in a red box .", "A dog sleeps .", "A man is feeding a dog in front of a blue van ."],
    "two": ["Two cats .", "A black cat is sleeping on a white sofa .", "A boy carries a girl behind a fence ."],
    "three": ["A lamp with a shade ."],
}


def _rows(name: str) -> list[tuple[Any, ...]]:
    table, rows = evaluation_tables(CAPTIONS_OF)[name]
    assert rows.schema.equals(table.schema)
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_tables_are_made_of_several_peoples_captions() -> None:
    rows = _rows("paraphrase_queries")
    assert sorted(rows) == sorted(
        (image, query, other, "all", "image")
        for image in ("one", "two")
        for query, other in permutations(CAPTIONS_OF[image], 2)
    )
    one, two = CAPTIONS_OF["one"], CAPTIONS_OF["two"]
    assert _rows("negations") == [
        ("one", one[0], "No dog is in a red box .", one[1], "no", "all"),
        ("one", one[2], "A man is not feeding a dog in front of a blue van .", one[0], "not", "all"),
        ("two", two[0], "No cats .", two[1], "no", "all"),
        ("two", two[1], "A black cat is not sleeping on a white sofa .", two[2], "not", "all"),
    ]
    assert _rows("swaps") == [
        ("one", one[2], "A dog is feeding a man in front of a blue van .", "relation", "roles"),
        ("two", two[2], "A girl carries a boy behind a fence .", "relation", "roles"),
        ("two", two[1], "A white cat is sleeping on a black sofa .", "attribute", "colour"),
    ]
    assert list(paraphrase_rows(["p", "q", "r", "s"], ["a", "b", "c", "d"])) == [
        ("p", 0, "a", "b", "c"),
        ("q", 0, "b", "c", "d"),
        ("r", 0, "c", "d", "a"),
        ("s", 0, "d", "a", "b"),
    ]
    assert list(paraphrase_rows(["p", "q"], ["a", "b"])) == []


@pytest.fixture
def flickr(tmp_path: Path, raw_params: dict[str, Any]) -> Settings:
    """A small Flickr8k with a third caption of each picture."""
    write_flickr8k(tmp_path / "set")
    tokens = tmp_path / "set" / "Flickr8k.token.txt"
    third = "".join(f"{number}.png#2\tA dog is in picture {number} .\n" for number in range(11))
    tokens.write_text(tokens.read_text() + third)
    counts = COUNTS | {"train": 18}
    return prepare_settings(raw_params, source="flickr", folder=str(tmp_path / "set"), counts=counts)


def test_stage_prepare_writes_tables_of_people_captions_and_ratings(flickr: Settings, tmp_path: Path) -> None:
    ratings = ("8.png 9.png#0 1 1 2", "8.png 8.png#1 4 4 4", "9.png 0.png#2 2 3 3", "3.png 9.png#0 1 1 1")
    (tmp_path / "set" / RATINGS).write_text("".join(f"{row}\n".replace(" ", "\t") for row in ratings))
    prepared(flickr, tmp_path)
    tables = {"paraphrase_queries": PARAPHRASE_QUERIES, "negations": NEGATION_QUERIES, "swaps": SWAPS}
    rows = {name: table.read(tmp_path / "evaluation" / f"{name}.parquet").num_rows for name, table in tables.items()}
    assert rows == {"paraphrase_queries": 2 * 6, "negations": 2, "swaps": 0}
    rated = CAPTION_RATINGS.read(tmp_path / "evaluation" / "caption_ratings.parquet")
    # The second row is of an own caption, the last of an image that does not test.
    assert rated["rating"].to_pylist() == [1, 1, 2, 2, 3, 3]
    assert set(rated["caption"].to_pylist()) == {"picture 9 .", "A dog is in picture 0 ."}
    path = tmp_path / "pairs" / "people_paraphrases.parquet"
    people = PEOPLE_PARAPHRASES.read(path).select(["id", "caption", "paraphrase_2"])
    assert people.num_rows == 18
    # A method that wants paraphrases trains on the file that its entry names.
    joined = join_rows({"image", "caption", "paraphrase_1", "paraphrase_2"}, path, tmp_path / "pairs" / "train.parquet")
    assert joined[people.column_names].to_dict("list") == people.to_pydict()
    entry = {"method": "paraclip", "train_data": "data/pairs/people_paraphrases.parquet"}
    check(flickr.model_copy(update={"methods": {"paraclip_people": entry}}))


def test_two_captions_of_a_picture_make_no_table_to_train_on(flickr: Settings, tmp_path: Path) -> None:
    write_flickr8k(tmp_path / "set")
    raw = flickr.model_dump(mode="json", by_alias=True)
    prepared(prepare_settings(raw, counts=COUNTS), tmp_path)
    assert not (tmp_path / "pairs" / "people_paraphrases.parquet").exists()
    assert not (tmp_path / "evaluation" / "caption_ratings.parquet").exists()


@pytest.mark.parametrize("style", ["first", "noisy"])
def test_one_caption_of_a_picture_trains_and_all_of_them_test(flickr: Settings, tmp_path: Path, style: str) -> None:
    every = prepared(flickr, tmp_path / "all")
    raw = flickr.model_dump(mode="json", by_alias=True)
    one = prepared(prepare_settings(raw, **raw["prepare"] | {"train_captions": style}), tmp_path)
    assert (one["val"], one["test"]) == (every["val"], every["test"])
    first = {pair["image_id"]: pair for pair in reversed(every["train"])}
    assert {pair["id"] for pair in one["train"]} == {pair["id"] for pair in first.values()}
    changed = [pair["caption"] for pair in one["train"] if pair["caption"] != first[pair["image_id"]]["caption"]]
    assert len(one["train"]) == 6
    assert len(changed) == (0 if style == "first" else 6)
    people = PEOPLE_PARAPHRASES.read(tmp_path / "pairs" / "people_paraphrases.parquet").to_pylist()
    assert {row["id"]: row["caption"] for row in people} == {pair["id"]: pair["caption"] for pair in one["train"]}
    wordings = {pair["caption"] for pair in every["train"]}
    assert {row[name] for row in people for name in ("paraphrase_1", "paraphrase_2")} <= wordings


CAPTIONS = {"8.png#0": "one", "9.png#0": "two"}


NEGATIONS = (
    ("no", "A brown dog digs a hole .", "No brown dog digs a hole ."),
    ("no", "three young girls sing .", "No young girls sing ."),
    ("no", "An empty street at night .", None),
    ("no", "Dogs dig holes .", None),
    ("not", "A man is reading and two dogs are sleeping .", "A man is not reading and two dogs are sleeping ."),
    ("not", "A man is tall .", None),
    ("not", "A man reads .", None),
    ("without", "A girl with an umbrella and a boy with a hat .", "A girl without an umbrella and a boy with a hat ."),
    ("without", "A table covered with a cloth .", None),
    ("without", "A girl with red shoes .", None),
    ("without", "A girl walks along with a dog .", None),
    *((cue, text, None) for cue in CUES for text in ("", " ", ".", "with", "no dog is not running without a stick")),
)
ATTRIBUTES = (
    ("A red car beside a blue van .", ("A blue car beside a red van .", "colour")),
    ("Black cat on an orange sofa", ("Orange cat on a black sofa", "colour")),
    ("An orange cat on a black sofa", ("A black cat on an orange sofa", "colour")),
    ("A small boy climbs a tall ladder .", ("A tall boy climbs a small ladder .", "size")),
    # The same things in another order.
    ("A red car and a blue car .", None),
    ("A red car and two blue cars .", None),
    # One attribute of one thing.
    ("A black and white cat .", None),
    ("A blue-green lake under tall trees .", None),
    ("A man in black sitting on a red chair .", None),
)
ROLES = (
    ("A woman carries a sleeping child .", "A child carries a sleeping woman ."),
    ("The dog is chasing another cat .", "The cat is chasing another dog ."),
    ("Girl feeding a brown horse", "Horse feeding a brown girl"),
    # Mutual acts, and no acts.
    ("A man hugs a woman .", None),
    ("A man and a woman are walking .", None),
    ("A dog chases another dog .", None),
)
RELATIONS = (
    ("A cat sleeps under a table .", "A cat sleeps over a table ."),
    ("A boy stands in front of his house .", "A boy stands behind his house ."),
    ("A cat on top of a shelf", "A cat underneath a shelf"),
    # With two equal relations, reversing one is not false; without a thing behind it, it is no relation.
    ("A cat under a table under a tree .", None),
    ("A man is bent over .", None),
)


def test_captions_are_made_false_and_ratings_refused_by_narrow_rules(tmp_path: Path) -> None:
    wrong = [(cue, text) for cue, text, negation in NEGATIONS if negated(text, cue) != negation]
    wrong += [("attributes", text) for text, false in ATTRIBUTES if attributes_exchanged(text) != false]
    wrong += [("roles", text) for text, false in ROLES if roles_exchanged(text) != false]
    wrong += [("relation", text) for text, false in RELATIONS if relation_turned(text) != false]
    assert not wrong
    for content, message in (
        (b"8.png\t9.png#0\t1\t1\n", "line 1 is not an image, a caption's key and three of 1 to 4"),
        (b"8.png\t9.png#0\t1\t1\t2\n8.png\t9.png#0\t1\t1\t5\n", "line 2 is not an image, .* three of 1 to 4"),
        (b"8.png\t9.png#0\t1\t1\tnan\n", "three of 1 to 4"),
        (b"8.png 9.png#0 1 1 1\n", "line 1 is not an image"),
        (b"8.png\t9.png#7\t1\t1\t1\n", "line 1 names an unknown caption '9.png#7': download the captions again"),
        (b"8.png\t9.png#0\t1\t1\t\xff\n", r"is not UTF-8 \(byte 18\)"),
    ):
        (tmp_path / RATINGS).write_bytes(content)
        with pytest.raises(InputError, match=f"ExpertAnnotations.txt.* {message}"):
            caption_ratings(tmp_path / RATINGS, CAPTIONS, {"8.png": "id"})


FULL: dict[str, Any] = {
    "title": "Mug", "brand": "Acme", "price": 7.0, "text_price": "12.5", "tags": ["red", "new"],
    "nothing": float("nan"), "metadata": {"brand": "Inner", "size": {"cm": 8}}, "flat.name": "flat",
    "captions": ["one", " two ", None, ""],
    "sentences": [{"raw": "a mug"}, {"raw": "a cup"}], "zero": 0, "no": False, "blank": " ", "none": None, "empty": [],
}  # fmt: skip


def test_templates_give_captions_and_lists_several() -> None:
    for template, caption in [
        ("title", "Mug"),
        ("title, brand , price", "Mug, Acme, 7"),
        ("title, nothing, blank, none, empty, brand", "Mug, Acme"),
        ("title, zero", "Mug, 0"),
        ("title, tags", "Mug, red, new"),
        ("{title} ({tags})", "Mug (red, new)"),
        ("{metadata.brand}, {metadata.size.cm} cm", "Inner, 8 cm"),
        ("metadata.brand, title", "Inner, Mug"),
        ("{flat.name}", "flat"),
        ("{title} for {price:.2f} EUR", "Mug for 7.00 EUR"),
        ("{text_price:.2f}", "12.50"),
        ("{title:>5}!", "Mug!"),
        # A missing value is left out with the words before it ...
        ("{title} by {none}, {tags}", "Mug, red, new"),
        ("{none}, {title}", "Mug"),
        ("{none} {title}", "Mug"),
        ("{title} by {none}", "Mug"),
        # ... and a part in brackets as a whole.
        ("{title}[ (by {none})] for {price} EUR", "Mug for 7 EUR"),
        ("{title}[ (by {brand})][ for {nothing} EUR]", "Mug (by Acme)"),
        ("[{none}: ]{title}", "Mug"),
        ("{title} [[{price}]] {{x}}", "Mug [7] {x}"),
        # Without a value in front of these words, the text would be wrong: no caption.
        ("{title} (by {none}) for {price} EUR", ""),
        ("{title} for {none} EUR", ""),
        ("{none} by {brand}", ""),
        ("{title} (by {none}, {price})", ""),
        ("{none}[ by {brand}]", ""),
        ("{none}", ""),
        ("[{none}]", ""),
    ]:
        made = TextTemplate(template)
        assert made.of(FULL) == caption
        assert made.captions(FULL) == ((caption,) if caption else ())
        if not caption:
            assert "no value of 'none', which prepare.text needs" in made.lacks(FULL)
    assert TextTemplate("captions").captions(FULL) == ("one", "two")
    assert TextTemplate("{sentences}").captions(FULL) == ("a mug", "a cup")
    assert TextTemplate("{captions}!").captions(FULL) == ("one, two!",)
    made = TextTemplate("{metadata.brand} {title} {colour}")
    assert made.unknown(["metadata", "title"]) == ["colour"]


def test_wrong_templates_and_values_that_cannot_be_shown_are_refused() -> None:
    for template, message in [
        ("{title", "is not a template"),
        ("title}", "is not a template"),
        ("{title}[ by {brand}", "is not a template"),
        ("{title}]", "is not a template"),
        ("{title}[ by Acme]", "is not a template"),
        ("{title}[ by [{brand}]]", "is not a template"),
        ("{} {}", "names no column"),
        ("", "names no column"),
        ("{price:title}", "unknown format"),
        ("{price:999999999}", "unknown format"),
        ("{price!r}", "unknown format"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            TextTemplate(template)
        assert "\n" not in str(caught.value)
    for template, message in [
        ("title, metadata", r"'metadata' holds fields, which are not a text: name a field in it, .*metadata\.brand"),
        ("{title} {nested}", "'nested' holds a list of dict"),
        ("raw", "'raw' holds bytes"),
        ("{title:.2f}", r"'title' is 'Mug', which the format '\.2f' of prepare\.text cannot show"),
    ]:
        with pytest.raises(InputError, match=message):
            TextTemplate(template).of(FULL | {"nested": [{"a": 1}], "raw": b"x"})
