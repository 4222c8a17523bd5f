"""A test set is written by one model, checked by rules and a judge, frozen, scored, and never trained on."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.captions.prompting.request import Request
from components.captions.test_queries import test_set
from components.captions.test_queries.test_set import run
from components.captions.validation.rules.probes import find_probes
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.folders import VALIDATION, benchmark_table
from components.core.tables.records import NEGATION_QUERIES, PAIRS, PARAPHRASE_QUERIES, REJECTED_QUERIES, SWAPS
from components.core.tables.written_queries import read_summary, read_written_queries
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import find_benchmark, table_files
from components.evaluation.scoring.context import ProjectContext
from tests.support.fake_engine import FakeEngine

SET, EVALUATION = Path("data/test_set"), Path("data/evaluation")
COLOURS = ("red", "green", "blue", "white", "black", "yellow")
TEST = [f"a {colour} dog on a sofa beside a boy" for colour in COLOURS]
VAL = [f"a {colour} cup on a sofa beside a boy" for colour in COLOURS[:2]]


def _writer(faults: dict[str, str | None]) -> FakeEngine:
    """Answers from the caption; `faults` are answers to a question whose text has a key."""

    def write(request: Request) -> str | None:
        question = f"{request.task}: {request.chat[-1][1]}"
        for words, answer in faults.items():
            if all(word in question for word in words.split(" + ")):
                return answer
        caption = request.source.inputs["caption"]
        sofa = ("couch", "settee")[request.attempt % 2]
        return {
            "type_query": caption.replace("a boy", "a male child").replace("sofa", sofa),
            "negate_terms": caption.replace(" on a ", " not on a ", 1),
            "swap_negative": caption.replace("dog", "?").replace("boy", "dog").replace("?", "boy"),
        }.get(request.task, "Yes")

    return FakeEngine(write)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_encoder: Encoder) -> Path:
    """Test and validation pairs, and a base."""
    monkeypatch.chdir(tmp_path)
    tiny_encoder.save(Path("models/base"))
    EVALUATION.mkdir(parents=True)
    _write_pairs("test", TEST)
    _write_pairs("val", VAL)
    return tmp_path


def _write_pairs(split: str, captions: list[str]) -> None:
    ids = [f"{split}{number}" for number in range(len(captions))]
    PAIRS.write(Path(f"data/pairs/{split}.parquet"), {"id": ids, "image_id": ids, "caption": captions})


@pytest.fixture
def write(project: Path, raw_params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the stage with a scripted model; returns its numbers of questions by task."""

    def run_with(faults: dict[str, str | None] | None = None, **options: Any) -> Counter[str]:
        engine = _writer(faults or {})
        monkeypatch.setattr(test_set, "make_engine", lambda _settings, _name: engine)
        raw_params["synthesize"] |= {"store": "sqlite:///store.db", "max_failed_share": 0.1}
        raw_params["validate"]["check_scene_facts"] = False
        raw_params["prepare"]["source"] = "folder"
        raw_params["test_set"] = {"llm": "student"} | options
        run(Settings.model_validate(raw_params))
        return Counter(request.task for request in engine.asked)

    return run_with


def test_every_kind_is_a_benchmark_table_of_both_splits(write: Any) -> None:
    assert write() == {
        "type_query": 16, "negate_terms": 8, "swap_negative": 8, "judge_paraphrase": 16, "judge_negation": 14,
    }  # fmt: skip
    rows = PARAPHRASE_QUERIES.read(SET / "paraphrase_queries.parquet").to_pylist()
    assert len(rows) == 12
    assert rows[0] == {
        "image_id": "test0", "query": TEST[0], "paraphrase": "a red dog on a couch beside a male child",
        "tier": "all", "held_out": "image",
    }  # fmt: skip
    (negation, *_) = NEGATION_QUERIES.read(SET / "negations.parquet").to_pylist()
    assert (negation["negation"], negation["cue"]) == ("a red dog not on a sofa beside a boy", "not")
    assert negation["paraphrase"] == rows[0]["paraphrase"]
    assert SWAPS.read(SET / "swaps.parquet")["false_caption"][0].as_py() == "a red boy on a sofa beside a dog"
    assert PARAPHRASE_QUERIES.count(SET / VALIDATION / "paraphrase_queries.parquet") == 4
    # Tables by people come first.
    benchmarks = [find_benchmark(name) for name in ("paraphrased_retrieval", "negations", "swaps")]
    assert {path.parent for path in table_files(benchmarks, EVALUATION)} == {SET}
    assert benchmark_table(EVALUATION / VALIDATION, "swaps.parquet").parent == EVALUATION / VALIDATION
    (EVALUATION / "swaps.parquet").touch()
    assert benchmark_table(EVALUATION, "swaps.parquet").parent == EVALUATION


def test_beside_paraphrases_by_people_a_model_writes_a_second_set_of_queries(write: Any, tiny_encoder: Encoder) -> None:
    write()
    for file in ("paraphrase_queries", "negations", "swaps"):
        shutil.copy(SET / f"{file}.parquet", EVALUATION)
    shutil.rmtree(SET)
    Path("store.db").unlink()
    assert write() == {"type_query": 16, "judge_paraphrase": 16}
    (table,) = table_files([find_benchmark("written_paraphrases")], EVALUATION)
    assert (table, PARAPHRASE_QUERIES.count(table)) == (SET / "written_paraphrases.parquet", 12)
    images = tiny_encoder.embed_texts(TEST)
    ids = [f"test{number}" for number in range(len(TEST))]
    context = ProjectContext(EncoderUnderTest("base", tiny_encoder, ""), EVALUATION, (1,), ids, images)
    scores = find_benchmark("written_paraphrases").score(context)
    assert len(scores.values["written_paraphrases/ao_at_1"]) == 12
    assert not any(name.startswith("paraphrased_retrieval") for name in scores.values)


REJECTIONS: list[tuple[dict[str, str | None], str, str]] = [
    ({"type_query + a red dog": None}, "paraphrase", "failed"),
    ({"type_query + a red dog": "..."}, "paraphrase", "length"),
    ({"type_query + a red dog": TEST[0]}, "paraphrase", "copies"),
    ({"type_query + a red dog": "quarterly results of a bank in Norway"}, "paraphrase", "similarity"),
    ({"type_query + a red dog": "one red dog on a couch beside a boy"}, "paraphrase", "duplicate"),
    ({"judge_paraphrase + a red dog": "No, it adds a child."}, "paraphrase", "judge"),
    ({"judge_paraphrase + a red dog": "I cannot say."}, "paraphrase", "judge"),
    ({"negate_terms + a red dog": "a red dog on a sofa"}, "negation", "terms:none"),
    ({"judge_negation + a red dog + not on": "No"}, "negation", "judge"),
    ({"swap_negative + a red dog": "a red boy on a chair beside a dog"}, "swap", "overlap"),
]


@pytest.mark.parametrize(("faults", "kind", "reason"), REJECTIONS)
def test_rules_and_judge_reject_with_a_reason(write: Any, faults: dict[str, Any], kind: str, reason: str) -> None:
    write(faults, max_captions=6)
    rejected = REJECTED_QUERIES.read(SET / "rejected.parquet").to_pylist()
    assert rejected
    assert {row["caption"] for row in rejected} == {TEST[0]}
    assert {row["kind"] for row in rejected} == {kind}
    assert all(reason in row["reason"] for row in rejected)
    summary = read_summary()
    assert summary is not None
    assert summary.answers[kind] - summary.accepted[kind] == len(rejected)
    assert len(read_written_queries()) == sum(summary.accepted.values())


def test_one_query_for_three_captions_is_no_query_of_any(write: Any) -> None:
    write({f"type_query + a {colour} dog": "a dog on a couch beside a male child" for colour in COLOURS[:3]})
    rejected = REJECTED_QUERIES.read(SET / "rejected.parquet").to_pylist()
    assert {row["caption"] for row in rejected} == set(TEST[:3])
    assert all("duplicate:constant" in row["reason"] for row in rejected)


def test_it_is_frozen_until_it_is_deleted(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    before = {path: path.read_bytes() for path in SET.rglob("*") if path.is_file()}
    assert not write(paraphrases=3, temperature=0.1)
    assert not write(llm=None)
    assert "to write another, delete data/test_set" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in SET.rglob("*") if path.is_file()} == before
    _write_pairs("test", TEST[:5])
    with pytest.raises(InputError, match="written for another test split"):
        write()
    assert {path: path.read_bytes() for path in SET.rglob("*") if path.is_file()} == before
    write(llm=None)
    assert read_summary() is None
    assert [path.name for path in SET.iterdir()] == ["summary.json"]


def test_too_few_and_failed_answers_end_the_stage_and_keep_the_others(write: Any) -> None:
    with pytest.raises(InputError, match=r"test_set: 6 of 42 questions failed"):
        write({"negate_terms": None})
    assert not SET.exists()
    # The next run sends only questions without an answer.
    with pytest.raises(InputError, match=r"no negation was accepted: remove 'negations' from evaluate"):
        write({"judge_negation": "No"})
    assert not SET.exists()
    Path("store.db").unlink()
    with pytest.raises(InputError, match=r"0 of 12 paraphrases were accepted \(judge 12\)"):
        write({"judge_paraphrase": "No"})
    assert not SET.exists()


def test_written_queries_never_train(write: Any, settings: Settings) -> None:
    write()
    raw = settings.model_dump(mode="json", by_alias=True) | {"mixes": {}}
    raw["prepare"]["source"], raw["validate"]["check_scene_facts"] = "folder", False
    probes = find_probes(Settings.model_validate(raw), EVALUATION)
    for query in read_written_queries():
        assert probes.find_leak(query.query.upper()) == "sentence"
    # The captions of test pictures may be those of training pictures too.
    assert probes.find_leak(TEST[0]) is None
