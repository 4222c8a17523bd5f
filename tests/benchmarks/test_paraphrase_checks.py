"""Labelled paraphrases: the file discloses no caption, and the benchmark counts what checks stop and let through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paraphrase_checks import run
from benchmarks.paraphrase_labels import (
    FLICKR8K,
    REASONS,
    TASKS,
    Labelled,
    draw,
    hidden,
    read_captions,
    read_labels,
    read_rows,
    shown,
    write_rows,
)
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.core.tables.records import GENERATIONS

CAPTION = "A dog with two red balls runs on the beach ."
TEXTS = st.text(st.characters(categories=("Lu", "Ll", "Zs", "Po"), max_codepoint=127), max_size=40)


@given(TEXTS, TEXTS)
def test_a_hidden_text_is_shown_again(text: str, caption: str) -> None:
    plain = " ".join(word if word.isupper() else word.lower() for word in text.split(" "))
    assert shown(hidden(plain, caption), caption) == plain


def test_words_of_the_caption_are_hidden_in_every_form() -> None:
    assert hidden("Two DOGS: a Dog, a DOG.", CAPTION) == "{3^} DOGS: {0} {1^}, {0} {1!}."


def _captions(count: int) -> dict[str, str]:
    return {f"{number}.jpg#0": f"caption number {chr(97 + number)} ." for number in range(count)}


def _answers(folder: Path, captions: dict[str, str]) -> Path:
    for task, table in TASKS.items():
        (folder / table).mkdir(exist_ok=True)
        texts = list(captions.values())
        rows = [f"First {text}" if task == "paraphrase_2" else text for text in texts]
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in GENERATIONS.schema.names}
        columns |= {"id": list(captions), "source": rows, "text": [f"{task} of {text}" for text in texts]}
        columns |= {"sample": [0] * len(rows), "accepted": [True] * len(rows), "key": texts}
        GENERATIONS.write(folder / table / f"{task}.parquet", columns)
    return folder


def test_drawn_rows_are_of_different_captions_and_read_back_with_their_labels(tmp_path: Path) -> None:
    captions = _captions(12)
    rows = draw(_answers(tmp_path, captions), captions, each=6, seed=0)
    assert rows == draw(_answers(tmp_path, captions), captions, each=6, seed=0)
    assert len({row["key"] for row in rows}) == 12
    assert not any(word in row["answer"] for row in rows for word in ("caption", "number"))
    write_rows(tmp_path / "labels.tsv", [row | {"label": "bad", "reason": "nonsense"} for row in rows])
    found = read_labels(captions, tmp_path / "labels.tsv")
    assert {one.answer for one in found} == {f"{one.task} of {one.caption}" for one in found}
    assert {one.source == one.caption for one in found if one.task != "paraphrase_2"} == {True}
    assert {one.source == f"First {one.caption}" for one in found if one.task == "paraphrase_2"} == {True}
    with pytest.raises(InputError, match=r"caption \d+\.jpg#0 is another one in this Flickr8k"):
        read_labels(dict.fromkeys(captions, "something else"), tmp_path / "labels.tsv")


def test_every_check_of_the_table_is_scored() -> None:
    made = [
        _labelled("paraphrase_1", CAPTION, "Two red balls are with a dog that runs on the beach.", "good"),
        _labelled("paraphrase_2", "A dog runs.", "A dog runs.", "bad"),
        _labelled("paraphrase_2", "Two red balls.", "A few crimson toys.", "bad"),
    ]
    found = run(made, settings_with("flickr8k"))
    assert found["checks"]["copies"] == {"bad_let_through": 1, "good_stopped": 0}
    assert found["checks"]["lost_number"] == {"bad_let_through": 1, "good_stopped": 0}
    assert found["checks"]["few_new_words"] == {"bad_let_through": 1, "good_stopped": 0}
    assert found["together"] == {"bad_let_through": 0, "good_stopped": 0}
    assert found["tried"]["few_new_words >= 1"] == {"bad_let_through": 1, "good_stopped": 0}
    assert "fault" not in found["checks"]


def _labelled(task: str, source: str, answer: str, label: Any) -> Labelled:
    return Labelled("1.jpg#0", task, CAPTION, source, answer, label, "" if label == "good" else "repeats")


def test_labels_are_of_a_hundred_different_captions() -> None:
    rows = read_rows()
    assert len({row["key"] for row in rows}) == len(rows) >= 100
    assert min(Counter(row["task"] for row in rows).values()) >= 30
    assert set(Counter(row["task"] for row in rows)) == set(TASKS)
    assert {row["label"] for row in rows} == {"good", "bad"}
    assert all((row["reason"] in REASONS) == (row["label"] == "bad") for row in rows)
    assert all(bool(row["first"]) == (row["task"] == "paraphrase_2") for row in rows)


@pytest.mark.skipif(not FLICKR8K.is_dir(), reason=f"{FLICKR8K} is absent: the captions' words are there")
def test_the_labelled_captions_are_those_of_flickr8k_and_none_of_their_words_is_in_the_file() -> None:
    labelled = read_labels(read_captions())
    for one, row in zip(labelled, read_rows(), strict=True):
        assert hidden(one.answer, one.caption) == row["answer"]
        assert "{" not in one.answer
