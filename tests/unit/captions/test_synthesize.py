"""The synthesize stage over a store and an engine that counts its questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from components.captions import synthesize
from components.captions.generating import asking, engines, questions
from components.captions.generating.asking import SynthesisCounts
from components.captions.generating.engines import make_engine
from components.captions.generating.store import Choice, GenerationStore
from components.captions.prompting.request import Request
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.records import PAIRS, SKIPPED
from components.core.tables.work_shard import Shard
from tests.support.fake_engine import FakeEngine, quoted
from tests.support.tracked_runs import find_runs


def _capitals(request: Request) -> str | None:
    """The quoted texts in capitals; "Yes" of a judge, but of some texts."""
    texts = quoted(request)
    if "fail here" in texts:
        return None
    if request.task.startswith("judge"):
        return "No." if "TWO" in texts[1] else "Perhaps" if "RED" in texts[1] else "Yes"
    return "" if "say nothing" in texts else f"{' / '.join(texts).split(': ')[-1].upper()} {request.attempt}"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    counting = FakeEngine(_capitals, "counting-1", batch=2)
    monkeypatch.setattr(engines, "make_engine", lambda _settings, _model: counting)
    return counting


@pytest.fixture
def settings(tmp_path: Path, raw_params: dict[str, Any]) -> Settings:
    captions = ["one dog", "two cats here", "x", "say nothing", "word " * 16, "one dog", "a red bus"]
    ids = [f"p{n}" for n in range(7)]
    table, made = tmp_path / "pairs" / "train.parquet", tmp_path / "captions" / "made"
    PAIRS.write(table, {"id": ids, "image_id": ids, "image": [b"i"] * 7, "caption": captions, "facts": [None] * 7})
    tasks: dict[str, dict[str, Any]] = {
        "paraphrase_1": {"samples": 2},
        "paraphrase_2": {"input": made / "paraphrase_1.parquet"},
        "rewrite": {"max_captions": 2, "samples": 2},
        "difference": {"caption_length": [2, 15]},
        "paraphrase_semclip": {"caption_length": [2, 15]},
        "judge_paraphrase": {"input": made / "paraphrase_semclip.parquet"},
    }
    raw_params["synthesize"] |= {
        "max_captions": 5,
        "store": f"sqlite:///{tmp_path / 'store.db'}",
        "cached_answers": None,
        "tasks": {name: {"table": "made", "input": table} | changes for name, changes in tasks.items()},
    }
    return Settings.model_validate(raw_params)


@dataclass
class Stage:
    """The stage with its settings, in a folder."""

    settings: Settings
    folder: Path

    def set(self, **changes: Any) -> None:
        synthesis = self.settings.synthesize.model_copy(update=changes)
        self.settings = self.settings.model_copy(update={"synthesize": synthesis})

    def set_task(self, name: str, **changes: Any) -> None:
        tasks = self.settings.synthesize.tasks
        self.set(tasks=tasks | {name: tasks[name].model_copy(update=changes)})

    def start_with_cached_answers(self) -> None:
        """An empty store whose settings name an export of the store so far."""
        GenerationStore(self.settings.synthesize.store).export_parquet(self.folder / "export.parquet")
        self.set(store=f"sqlite:///{self.folder / 'new.db'}", cached_answers=self.folder / "export.parquet")

    def run(self, task: str, shard: Shard | None = None) -> SynthesisCounts:
        return synthesize.run(self.settings, task, self.folder / "captions", shard=shard)

    def file(self, task: str) -> Path:
        return self.folder / "captions" / "made" / f"{task}.parquet"

    def rows(self, task: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.file(task)).to_pylist()
        return rows


@pytest.fixture
def stage(settings: Settings, tmp_path: Path) -> Stage:
    return Stage(settings, tmp_path)


def test_answers_that_the_judge_rejects_are_not_accepted(
    stage: Stage, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "make_engine", lambda _settings, _model: engine)
    stage.set_task("paraphrase_1", judge_llm="student")
    counts = stage.run("paraphrase_1")
    rows = [(row["source"], row["accepted"], row["reason"], row["verdict"]) for row in stage.rows("paraphrase_1")]
    assert rows[::2] == [
        ("one dog", True, None, "yes"),
        ("two cats here", False, "judge", "no"),
        ("say nothing", False, "unparsable", None),
        ("one dog", True, None, "yes"),
        ("a red bus", False, "judge", "no"),
    ]
    assert counts.rejected == sum(not accepted for _, accepted, *_ in rows) == 6
    assert capsys.readouterr().out.splitlines()[1] == "paraphrase_1: 8 new verdicts by 'student', 4 from the store"
    # The next task reads accepted answers alone.
    stage.run("paraphrase_2")
    assert {row["source"] for row in stage.rows("paraphrase_2")} == {"ONE DOG 0", "ONE DOG 1"}


def test_captions_get_their_samples_once_and_the_second_step_rewrites_them(stage: Stage, engine: FakeEngine) -> None:
    counts = stage.run("paraphrase_1")
    rows, path = stage.rows("paraphrase_1"), stage.file("paraphrase_1")
    wanted = [(pair, sample) for pair in ("p0", "p1", "p3", "p5", "p6") for sample in (0, 1)]
    assert [(row["id"], row["sample"]) for row in rows] == wanted
    assert rows[0]["text"] == "ONE DOG 0"
    assert [row["reason"] for row in rows if row["id"] == "p3"] == ["unparsable", "unparsable"]
    assert (counts.replayed, counts.generated, counts.rejected) == (2, 8, 2)
    assert counts.skipped == sum(json.loads(pq.read_metadata(path).metadata[SKIPPED.encode()]).values()) == 2
    first = path.read_bytes()
    engine.asked.clear()
    counts = stage.run("paraphrase_1")
    assert (counts.replayed, counts.generated, engine.asked) == (10, 0, [])
    assert path.read_bytes() == first
    stage.run("paraphrase_1")
    stage.run("paraphrase_2")
    found = [(row["id"], row["sample"], row["source"]) for row in stage.rows("paraphrase_2")]
    assert found[:2] == [("p0", 0, "ONE DOG 0"), ("p0", 1, "ONE DOG 1")]
    assert "p3" not in {pair for pair, *_ in found}


def test_cached_answers_come_first_and_pruned_ones_do_not_return(stage: Stage, engine: FakeEngine) -> None:
    stage.run("paraphrase_1")
    stage.start_with_cached_answers()
    engine.asked.clear()
    assert (stage.run("paraphrase_1").replayed, engine.asked) == (10, [])
    store = GenerationStore(stage.settings.synthesize.store)
    store.prune(Choice(task="paraphrase_1"))
    assert (stage.run("paraphrase_1").replayed, len(engine.asked), store.count()) == (2, 8, 8)


def test_some_questions_ignore_the_cache(stage: Stage, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.run("rewrite")
    stage.run("paraphrase_1")
    stage.start_with_cached_answers()
    stage.set_task("paraphrase_1", always_ask_first=3)
    engine.asked.clear()
    # Whichever task comes first imports the cached answers.
    for task, count in (("rewrite", 0), ("paraphrase_1", 3), ("paraphrase_1", 0)):
        assert stage.run(task).generated == count
    assert [request.attempt for request in engine.asked] == [0, 1, 0]
    # A store that has them needs no list of these questions, which takes reading the captions.
    monkeypatch.setattr(questions, "_asked_live", None)
    stage.run("rewrite")


def test_the_settings_limit_the_length_of_captions(stage: Stage, engine: FakeEngine) -> None:
    def taken(name: str, words: tuple[int, int] | None) -> list[str]:
        stage.set_task(name, caption_length=words, max_captions=9)
        stage.run(name)
        return list(dict.fromkeys(row["id"] for row in stage.rows(name)))

    assert taken("rewrite", None) == [f"p{number}" for number in range(7)]
    assert taken("rewrite", (3, 16)) == ["p1", "p4", "p6"]
    assert taken("paraphrase_1", None) == ["p0", "p1", "p3", "p5", "p6"]
    with pytest.raises(InputError, match=r"tasks\.paraphrase_2\.caption_length: the task does not read captions"):
        taken("paraphrase_2", (2, 15))


def test_the_settings_choose_the_published_wording(stage: Stage, engine: FakeEngine) -> None:
    roles = []
    for wording in ("own", "published"):
        stage.set_task("paraphrase_1", prompt=wording)
        engine.asked.clear()
        assert stage.run("paraphrase_1").generated == 8, "no answer to the other wording is used"
        roles.append({role for request in engine.asked for role, _ in request.chat})
    assert roles == [{"system", "user"}, {"user"}]


def test_a_question_about_two_captions_keeps_both(stage: Stage, engine: FakeEngine) -> None:
    counts = stage.run("difference")
    rows = stage.rows("difference")
    captions = {row["id"]: row["caption"] for row in PAIRS.read(stage.folder / "pairs" / "train.parquet").to_pylist()}
    assert [row["id"] for row in rows] == ["p0", "p1", "p3", "p5", "p6"]
    for row in rows:
        sources = [captions[row["id"]], captions[row["other_id"]]]
        assert [row["source"], row["other_source"]] == sources
        assert row["text"] == (None if "say nothing" in sources else " / ".join(sources).upper() + " 0")
    assert counts.rejected == sum(row["text"] is None for row in rows) > 0


def test_a_wrong_model_or_task_is_named(stage: Stage) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, r"model 'm' is not in synthesize\.llms: add it, or choose one of none"),
        ({"m": {"engine": "locl"}}, r"synthesize\.llms\.m\.engine 'locl' is unknown: did you mean 'local'"),
        ({"m": {"engine": "local", "adaptor": "x"}}, r"llms\.m: unknown key 'adaptor': did you mean 'adapter'"),
    ]
    with pytest.raises(InputError, match=r"no block synthesize\.tasks\.paraphrase_9"):
        stage.run("paraphrase_9")
    for models, message in cases:
        stage.set(llms=models)
        with pytest.raises(InputError, match=message):
            make_engine(stage.settings.synthesize, "m")


def test_shards_store_answers_and_a_run_without_one_writes_the_table(stage: Stage, engine: FakeEngine) -> None:
    for number in range(3):
        stage.run("paraphrase_1", Shard(number, 3))
        assert not stage.file("paraphrase_1").exists()
    asked = [request.key for request in engine.asked]
    assert len(asked) == len(set(asked)) == 8
    counts = stage.run("paraphrase_1")
    assert (counts.replayed, counts.generated) == (10, 0)
    of_shards = stage.file("paraphrase_1").read_bytes()
    stage.set(store=f"sqlite:///{stage.folder / 'new.db'}")
    stage.run("paraphrase_1")
    assert stage.file("paraphrase_1").read_bytes() == of_shards


def test_a_failed_question_is_a_rejected_row_and_is_repeated_by_the_next_run(stage: Stage, engine: FakeEngine) -> None:
    path = stage.folder / "pairs" / "train.parquet"
    pairs = PAIRS.read(path).to_pylist()
    pairs[0]["caption"] = "fail here"
    PAIRS.write(path, {name: [row[name] for row in pairs] for name in pairs[0]})
    with pytest.raises(InputError, match=r"paraphrase_1: 2 of 10 questions failed .*max_failed_share \(0\.05\)"):
        stage.run("paraphrase_1")
    rows = stage.rows("paraphrase_1")
    assert [(row["accepted"], row["reason"]) for row in rows[:2]] == [(False, "failed: HTTP 500 after 3 attempts")] * 2
    assert len(rows) == 10
    engine.asked.clear()
    stage.set(max_failed_share=0.2)
    assert (stage.run("paraphrase_1").failed, len(engine.asked)) == (2, 2)


def test_the_judge_keeps_or_rewrites(stage: Stage, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.run("paraphrase_semclip")
    judge = FakeEngine(_capitals, "judge-1", batch=2)
    monkeypatch.setattr(engines, "make_engine", lambda _settings, _model: judge)
    stage.run("judge_paraphrase")
    rows = stage.rows("judge_paraphrase")
    outcomes = {row["source"]: (row["text"], row["verdict"], row["written_by"], row["reason"]) for row in rows}
    assert outcomes["one dog"] == ("ONE DOG 0", "yes", "generator", None)
    text, verdict, writer, reason = outcomes["two cats here"]
    assert (text.startswith("TWO CATS HERE"), verdict, writer, reason) == (True, "no", "judge", None)
    assert text != "TWO CATS HERE 0", "the judge answers again"
    assert outcomes["a red bus"][1:] == ("no", "judge", None), "neither word is not a yes"
    assert [request.task for request in judge.asked].count("paraphrase_semclip") == 2
    assert {bool(request.parse and request.parse("I say yes")) for request in judge.asked} == {False, True}
    assert all(row["other_source"] is None for row in rows)


def test_a_dry_run_counts_questions_and_sends_none(
    stage: Stage, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(synthesize, "load_checked", lambda: stage.settings)
    synthesize.main("paraphrase_1", dry_run=True)
    assert "paraphrase_1: 10 questions to counting-1, 0 of them answered, at most 10 to ask" in capsys.readouterr().out
    assert engine.asked == []
    stage.run("paraphrase_1")
    synthesize.main("paraphrase_1", dry_run=True)
    assert "10 of them answered, at most 0 to ask" in capsys.readouterr().out


def test_without_a_task_the_command_runs_all_and_exports(
    stage: Stage, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None]
) -> None:
    tasks = {name: stage.settings.synthesize.tasks[name] for name in ("rewrite", "difference")}
    stage.set(tasks=tasks)
    monkeypatch.setattr(synthesize, "load_checked", lambda: stage.settings)
    track_in(stage.folder)
    synthesize.main(export=stage.folder / "all.parquet")
    written = Path("data") / "captions" / "made"
    assert {path.stem for path in written.iterdir()} == set(tasks)
    assert pq.read_table("all.parquet").num_rows == len(engine.asked) == 4 + 5
    runs = {run.data.tags["encoder"]: run.data for run in find_runs(stage.settings.dataset.name, "synthesize")}
    assert {task: run.metrics["generated"] for task, run in runs.items()} == {"rewrite": 4, "difference": 5}
    assert runs["rewrite"].tags["output.rewrite.sha256"] == file_hash(written / "rewrite.parquet")
