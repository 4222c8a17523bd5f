"""Answers from a table: found by caption or picture in every format, the rest left out or asked of a model, counted."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from components.captions import synthesize
from components.captions.generating import engines
from components.captions.generating.asking import SynthesisCounts
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import GENERATIONS, PAIRS
from tests.support.fake_engine import FakeEngine

CAPTIONS = ["a dog", 'a "red" cat', "two\tboys", "a horse"]
ROWS = [
    {"caption": "a dog", "paraphrase_1": '"One dog."', "again": "a lone hound", "negation": "no dog"},
    {"caption": 'a "red" cat', "paraphrase_1": "One red cat.", "again": "", "negation": "no cat"},
    {"caption": "two boys", "paraphrase_1": "A pair of boys.", "again": "lads, two of them", "negation": None},
]
COLUMNS = {"paraphrase_2": "again"}
FIRST, SECOND, NEGATED = "paraphrases/paraphrase_1", "paraphrases/paraphrase_2", "negations/negate_semclip"


@pytest.fixture
def params(tmp_path: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    ids = [f"p{number}" for number in range(len(CAPTIONS))]
    files = [f"data/shop/images/{name}.jpg" for name in ids]
    PAIRS.write(
        Path("data/pairs/train.parquet"),
        {"id": ids, "image_id": ids, "caption": CAPTIONS, "image": [None] * 4, "facts": [None] * 4, "file": files},
    )
    tasks = {
        "paraphrase_1": {"table": "paraphrases", "input": "data/pairs/train.parquet"},
        "paraphrase_2": {"table": "paraphrases", "input": "data/captions/paraphrases/paraphrase_1.parquet"},
        "negate_semclip": {"table": "negations", "input": "data/pairs/train.parquet"},
    }
    raw_params["synthesize"] |= {"tasks": tasks, "default_llm": "mine", "cached_answers": None}
    return raw_params


def _run(params: dict[str, Any], *tasks: str, path: str = "mine.tsv", **options: Any) -> list[SynthesisCounts]:
    llms = {"mine": {"engine": "table", "path": path, "columns": COLUMNS, **options}, "model": {"engine": "local"}}
    settings = Settings.model_validate(params | {"synthesize": params["synthesize"] | {"llms": llms}})
    return [synthesize.run(settings, task, Path("data/captions")) for task in tasks]


def _written(name: str) -> dict[str, str | None]:
    table = GENERATIONS.read(Path("data/captions", f"{name}.parquet"))
    return dict(zip(table["source"].to_pylist(), table["text"].to_pylist(), strict=True))


def _write(path: str, rows: Sequence[dict[str, Any]] = ROWS) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.endswith(".parquet"):
        pd.DataFrame(rows).to_parquet(path)
    elif path.endswith(".jsonl"):
        Path(path).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        with Path(path).open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.DictWriter(stream, names, delimiter="\t" if path.endswith(".tsv") else ",")
            writer.writeheader()
            writer.writerows(rows)


@pytest.mark.parametrize("path", ["mine.tsv", "mine.csv", "mine.jsonl", "mine.parquet"])
def test_rows_answer_by_caption_and_what_they_lack_is_left_out_and_counted(
    params: dict[str, Any], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(path, [*ROWS, {"caption": "a camel", "paraphrase_1": "One camel.", "again": "", "negation": "no camel"}])
    found = _run(params, "paraphrase_1", "paraphrase_2", "negate_semclip", path=path)
    assert [(counts.generated, counts.skipped, counts.failed) for counts in found] == [(3, 1, 0), (2, 1, 0), (2, 2, 0)]
    assert _written(FIRST) == {"a dog": "One dog.", 'a "red" cat': "One red cat.", "two\tboys": "A pair of boys."}
    assert _written(SECOND) == {"One dog.": "a lone hound", "A pair of boys.": "lads, two of them"}
    assert _written(NEGATED) == {"a dog": "no dog", 'a "red" cat': "no cat"}
    assert f"paraphrase_1: 1 of the 4 answers in {path} belong to no question" in capsys.readouterr().out
    assert [counts.replayed for counts in _run(params, "paraphrase_1", path=path)] == [3], "the store has them"


def test_columns_may_have_other_names(params: dict[str, Any]) -> None:
    _write("mine.tsv", [{"title": "a dog", "other": "One dog."}])
    _run(params, "paraphrase_1", columns={"caption": "title", "paraphrase_1": "other"})
    assert _written(FIRST) == {"a dog": "One dog."}


@pytest.mark.parametrize("name", ["p{}.jpg", "images/p{}.jpg", "./images/p{}.jpg", "data/shop/images/p{}.jpg"])
def test_rows_answer_by_picture(params: dict[str, Any], name: str) -> None:
    rows = [
        {"photo": name.format(number), "paraphrase_1": f"text {number}", "again": f"more {number}"} for number in (0, 3)
    ]
    _write("mine.tsv", rows)
    _run(params, "paraphrase_1", "paraphrase_2", image="photo")
    assert _written(FIRST) == {"a dog": "text 0", "a horse": "text 3"}
    assert _written(SECOND) == {"text 0": "more 0", "text 3": "more 3"}


def test_rows_of_one_caption_are_its_samples(params: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    _write(
        "mine.tsv",
        [*ROWS, {"caption": "a dog", "paraphrase_1": "Some dog."}, {"caption": "a dog", "paraphrase_1": "Dog."}],
    )
    params["synthesize"]["tasks"]["paraphrase_1"]["samples"] = 2
    (counts,) = _run(params, "paraphrase_1")
    assert (counts.generated, counts.skipped) == (4, 4)
    table = GENERATIONS.read(Path("data/captions", f"{FIRST}.parquet")).to_pylist()
    assert [row["text"] for row in table if row["source"] == "a dog"] == ["One dog.", "Some dog."]
    assert "1 of the 5 answers in mine.tsv belong to no question" in capsys.readouterr().out


def test_another_model_answers_what_the_table_does_not(params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, real = (
        FakeEngine(lambda request: request.source.inputs["caption"].upper(), "writer", batch=1),
        engines.make_engine,
    )
    monkeypatch.setattr(engines, "make_engine", lambda block, name: model if name == "model" else real(block, name))
    _write("mine.tsv")
    (counts,) = _run(params, "negate_semclip", otherwise="model")
    assert (counts.generated, counts.skipped, len(model.asked)) == (4, 0, 2)
    assert _written(NEGATED) == {
        "a dog": "no dog", 'a "red" cat': "no cat", "two\tboys": "TWO BOYS", "a horse": "A HORSE",
    }  # fmt: skip


NOTHING = "answers no question of task 'negate_semclip', the first of which is about 'a dog': name the data's captions"
BAD: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "other captions": ([{"caption": "a boat", "negation": "no boat"}], {}, NOTHING),
    "no column": ([{"caption": "a dog", "no": "no dog"}], {}, "none for 'negation': correct `columns`"),
    "no caption": ([{"title": "a dog", "negation": "no dog"}], {}, "none for 'caption': correct `columns`"),
    "a list": ([{"caption": "a dog", "negation": ["no"]}], {"path": "mine.jsonl"}, "line 1 has .*: write a row per"),
    "another file": (ROWS, {"path": "mine.xlsx"}, r"a table of answers is a file \.csv"),
    "no file": (ROWS, {"path": "other.tsv"}, r"table other\.tsv is missing: correct its `path`"),
    "itself": (ROWS, {"otherwise": "mine"}, "otherwise: 'mine' is a table too: name a model"),
}
"""Rows, options and the error's line."""


@pytest.mark.parametrize("case", BAD)
def test_a_table_that_cannot_answer_is_refused_in_one_line(params: dict[str, Any], case: str) -> None:
    rows, options, message = BAD[case]
    _write(options.get("path", "mine.tsv") if case != "no file" else "mine.tsv", rows)
    with pytest.raises(InputError, match=message) as caught:
        _run(params, "negate_semclip", **options)
    assert "\n" not in str(caught.value)
