"""A log of other queries than those that an encoder knows is found, and the same kind of queries is not."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.drift import Drift, KnownTexts, drift, read_log
from components.evaluation.scoring.intervals import Interval

THINGS = ("dog", "cat", "car", "tree", "house", "boat", "horse", "chair")
TEXTS = [f"a {size} {thing} number {number}" for thing in THINGS for size in ("small", "large") for number in range(20)]
KNOWN = [(text, str(number)) for number, text in enumerate(TEXTS)]
ODD = [f"{letter}{letter}{number} zq xx" for letter in "qxzjkvwy" for number in range(20)]


def test_only_queries_of_another_kind_are_unlike_and_equal_texts_count_once(tiny_encoder: Encoder) -> None:
    same = drift(tiny_encoder, TEXTS[::2], KNOWN[1::2] + KNOWN[::2])
    other = drift(tiny_encoder, ODD, KNOWN)
    assert (same.queries, same.known, other.queries) == (160, 320, 160)
    # The tiny tower has random weights: it tells texts of other words apart, and no more.
    assert other.unlike.value > 0.5
    assert other.is_due
    assert other.unlike.low <= other.unlike.value <= other.unlike.high
    assert same.unlike.value < 0.3
    assert not same.is_due
    assert [cosine for *_, cosine in other.most_unlike] == sorted(cosine for *_, cosine in other.most_unlike)
    assert other.most_unlike[0][0] in ODD
    found = drift(tiny_encoder, ["dog", "dog", "cat", "a cat"] * 20, KNOWN)
    assert (found.queries, found.one_word) == (3, (2 / 3, 0.0))


def test_it_is_due_where_surely_twice_the_usual_share_is_unlike_and_siblings_are_not_known() -> None:
    for low, due in ((0.04, False), (0.05, False), (0.06, True)):
        spans = Interval(0.2, 0.15, 0.3), Interval(0.15, low, 0.2)
        assert Drift(100, 100, *spans, (0, 0), []).is_due == due
    # Two pictures of equal texts each: none but its own picture's is near a text.
    angles = np.repeat(np.arange(120), 4) * 2 * np.pi / 120
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts = [(str(row), str(row // 4)) for row in range(480)]
    reference = KnownTexts.of(lambda rows: vectors[[int(row) for row in rows]], texts)
    assert (reference.least, reference.held_out) == (pytest.approx(np.cos(2 * np.pi / 120), abs=1e-4), 120)
    with pytest.raises(InputError, match="known texts are of 99 pictures: at least 100 are needed"):
        KnownTexts.of(lambda rows: vectors[: len(rows)], texts[:396])


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
