"""A log of other queries than those that an encoder knows is found, and the same kind of queries is not."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder, Vectors
from components.evaluation.scoring.drift import USUAL, Drift, KnownTexts, drift, read_log
from components.evaluation.scoring.intervals import Interval, difference_of_shares

THINGS = ("dog", "cat", "car", "tree", "house", "boat", "horse", "chair")
TEXTS = [f"a {size} {thing} number {number}" for thing in THINGS for size in ("small", "large") for number in range(20)]
KNOWN = [(text, str(number)) for number, text in enumerate(TEXTS)]
ODD = [f"{letter}{letter}{number} zq xx" for letter in "qxzjkvwy" for number in range(20)]


def test_only_queries_of_another_kind_are_unlike(tiny_encoder: Encoder) -> None:
    same = drift(tiny_encoder, TEXTS[::2], KNOWN[1::2] + KNOWN[::2])
    other = drift(tiny_encoder, ODD, KNOWN)
    assert (same.queries, same.known, other.queries) == (160, 160, 160)
    # The tiny tower has random weights: it tells texts of other words apart, and no more.
    assert other.unlike.value > 0.5
    assert other.is_due
    assert other.unlike.low <= other.unlike.value <= other.unlike.high
    assert same.unlike.value < 0.3
    assert not same.is_due
    assert [cosine for *_, cosine in other.most_unlike] == sorted(cosine for *_, cosine in other.most_unlike)
    assert other.most_unlike[0][0] in ODD


def test_equal_texts_are_compared_once_and_one_word_counts(tiny_encoder: Encoder) -> None:
    found = drift(tiny_encoder, ["dog", "dog", "cat", "a cat"] * 20, KNOWN)
    assert (found.queries, found.one_word) == (3, (2 / 3, 0.0))


def test_it_is_due_where_surely_twice_the_usual_share_is_unlike() -> None:
    for low, due in ((0.04, False), (0.05, False), (0.06, True)):
        spans = Interval(0.2, 0.15, 0.3), Interval(0.15, low, 0.2)
        assert Drift(100, 100, *spans, (0, 0), []).is_due == due


@pytest.mark.parametrize("texts_of_a_picture", [1, 4])
def test_siblings_raise_no_alarm_and_changed_queries_do(texts_of_a_picture: int) -> None:
    """Texts of a picture are alike. Queries are of other pictures, and a fifth of the changed ones of other things."""
    generator = np.random.default_rng(0)
    alarms = {0.0: 0, 0.2: 0}
    for seed in range(30):
        kinds = generator.normal(size=(40, 24))

        def features(count: int, siblings: int, about: Vectors = kinds) -> Vectors:
            centres = about[generator.integers(len(about), size=count)] + 0.7 * generator.normal(size=(count, 24))
            found = centres.repeat(siblings, axis=0) + 0.2 * generator.normal(size=(count * siblings, 24))
            return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

        known = features(400, texts_of_a_picture)
        texts = [(str(row), str(row // texts_of_a_picture)) for row in range(len(known))]
        reference = KnownTexts.of(lambda rows, known=known: known[[int(row) for row in rows]], texts, seed)
        for share in alarms:
            odd = features(int(1000 * share), 1, generator.normal(size=(40, 24)))
            unlike = reference.unlike(np.concatenate([features(1000 - len(odd), 1), odd])) / 1000
            more = difference_of_shares(unlike, 1000, USUAL, reference.held_out)
            alarms[share] += Drift(1000, 400, more, more, (0, 0), []).is_due
    assert alarms[0.0] <= 1
    assert alarms[0.2] >= 24


def test_logs_of_several_kinds_are_read_and_others_named(tmp_path: Path) -> None:
    queries = [f"query {number}" for number in range(60)]
    table = pd.DataFrame({"query": queries, "clicks": range(60)})
    files = [tmp_path / f"log.{kind}" for kind in ("txt", "tsv", "csv", "jsonl", "parquet")]
    files[0].write_text("\n".join(["", *queries, "  "]))
    table.to_csv(files[1], sep="\t", index=False)
    table.to_csv(files[2], index=False)
    files[3].write_text("\n".join(json.dumps({"query": query}) for query in queries))
    table.to_parquet(files[4])
    for file in files:
        assert read_log(file) == queries, file
    odd = ['"red dress', '24" tv', "null", "None", "NA", "nan", "n/a", *queries, 'say "hi"', "a, b"]
    files[0].write_text("\ufeff" + "\n".join(odd), "utf-8")
    files[1].write_text("\ufeffclicks\tquery\n" + "\n".join(f"1\t{query}" for query in odd), "utf-8")
    with files[2].open("w", newline="", encoding="utf-8-sig") as stream:
        csv.writer(stream).writerows([["query"], *([query] for query in odd)])
    files[3].write_text("\n".join(json.dumps({"query": query}) for query in [*odd, None]))
    pd.DataFrame({"query": [*odd, None]}).to_parquet(files[4])
    for file in files:
        assert read_log(file) == odd, file
    (tmp_path / "other.csv").write_text("text\n" + "\n".join(queries))
    (tmp_path / "few.txt").write_text("one\ntwo")
    (tmp_path / "bad.parquet").write_bytes(b"none")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    for name, words in (
        ("other.csv", "and none for .query.: call one query"),
        ("few.txt", "has 2 queries: at least 50 are needed"),
        ("bad.parquet", "is damaged"),
        ("bad.txt", "cannot be read"),
        ("none.txt", "cannot be read"),
    ):
        with pytest.raises(InputError, match=words) as error:
            read_log(tmp_path / name)
        assert "\n" not in str(error.value)
