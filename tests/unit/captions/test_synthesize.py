"""The synthesize stage over a store and an engine that counts its questions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from more_itertools import batched

from components.captions import synthesize
from components.captions.generating import engines, questions
from components.captions.generating.engines import engine_of, make_engine
from components.captions.generating.store import GenerationStore
from components.captions.generating.store.upkeep import Choice
from components.captions.prompting.request import Reply, Request
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.records import PAIRS, SKIPPED
from components.core.tables.work_shard import Shard
from tests.support.tracked_runs import find_runs


class CountingEngine:
    """Answers with the quoted text in capitals, in batches of two, and can die after some."""

    def __init__(self, model: str = "counting-1") -> None:
        self.model = model
        self.asked: list[Request] = []
        self.die_after: int | None = None

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for batch in batched(requests, 2):
            if self.die_after is not None and len(self.asked) >= self.die_after:
                raise RuntimeError("killed")
            self.asked += batch
            yield [self._reply(request) for request in batch]

    def _reply(self, request: Request) -> Reply:
        texts = re.findall(r'"([^"]*)"', request.messages[-1]["content"])
        if "fail here" in texts:
            return Reply(request, None, "HTTP 500 after 3 attempts")
        if request.task.startswith("judge"):
            return Reply(request, "No." if "TWO" in texts[1] else "Perhaps" if "RED" in texts[1] else "Yes")
        text = request.messages[-1]["content"].split(": ")[-1] if not texts else " / ".join(texts)
        return Reply(request, "" if "say nothing" in texts else f"{text.upper()} {request.attempt}")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> CountingEngine:
    counting = CountingEngine()
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


def _with(settings: Settings, **changes: Any) -> Settings:
    return settings.model_copy(update={"synthesize": settings.synthesize.model_copy(update=changes)})


def _with_task(settings: Settings, name: str, **changes: Any) -> Settings:
    tasks = settings.synthesize.tasks
    return _with(settings, tasks=tasks | {name: tasks[name].model_copy(update=changes)})


def _rows(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "captions" / "made" / f"{name}.parquet").to_pylist()
    return rows


def test_every_usable_caption_gets_its_samples_once(settings: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    counts = synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    rows, path = _rows(tmp_path, "paraphrase_1"), tmp_path / "captions" / "made" / "paraphrase_1.parquet"
    assert [(row["id"], row["sample"]) for row in rows] == [
        (pair, sample) for pair in ("p0", "p1", "p3", "p5", "p6") for sample in (0, 1)
    ]
    assert rows[0]["text"] == "ONE DOG 0"
    assert [row["reason"] for row in rows if row["id"] == "p3"] == ["unparsable", "unparsable"]
    assert (counts.replayed, counts.generated, counts.rejected) == (2, 8, 2)
    assert counts.skipped == sum(json.loads(pq.read_metadata(path).metadata[SKIPPED.encode()]).values()) == 2
    first = path.read_bytes()
    engine.asked.clear()
    counts = synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    assert engine.asked == []
    assert (counts.replayed, counts.generated) == (10, 0)
    assert path.read_bytes() == first


def test_the_second_step_rewrites_the_first_ones_answers(
    settings: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    synthesize.run(settings, "paraphrase_2", tmp_path / "captions")
    rows = _rows(tmp_path, "paraphrase_2")
    assert [(row["id"], row["sample"], row["source"]) for row in rows[:2]] == [
        ("p0", 0, "ONE DOG 0"),
        ("p0", 1, "ONE DOG 1"),
    ]
    assert "p3" not in {row["id"] for row in rows}


def test_cached_answers_come_first_and_pruned_ones_stay_away(
    settings: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    GenerationStore(settings.synthesize.store).export_parquet(tmp_path / "export.parquet")
    other = _with(settings, store=f"sqlite:///{tmp_path / 'new.db'}", cached_answers=tmp_path / "export.parquet")
    engine.asked.clear()
    assert synthesize.run(other, "paraphrase_1", tmp_path / "again").replayed == 10
    assert engine.asked == []
    store = GenerationStore(other.synthesize.store)
    store.prune(Choice(task="paraphrase_1"))
    counts = synthesize.run(other, "paraphrase_1", tmp_path / "again")
    assert (counts.replayed, len(engine.asked)) == (2, 8)
    assert store.count() == 8


def test_some_questions_are_sent_although_their_answers_are_cached(
    settings: Settings, engine: CountingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthesize.run(settings, "rewrite", tmp_path / "captions")
    synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    GenerationStore(settings.synthesize.store).export_parquet(tmp_path / "export.parquet")
    other = _with(settings, store=f"sqlite:///{tmp_path / 'new.db'}", cached_answers=tmp_path / "export.parquet")
    other = _with_task(other, "paraphrase_1", always_ask_first=3)
    engine.asked.clear()
    # Whichever task comes first imports the cached answers.
    for task, count in (("rewrite", 0), ("paraphrase_1", 3), ("paraphrase_1", 0)):
        assert synthesize.run(other, task, tmp_path / "again").generated == count
    assert [request.attempt for request in engine.asked] == [0, 1, 0]
    # A store that has them needs no list of these questions, which takes reading the captions.
    monkeypatch.setattr(questions, "_asked_live", None)
    synthesize.run(other, "rewrite", tmp_path / "again")


def test_a_task_takes_captions_of_the_words_that_its_settings_say(
    settings: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    def taken(name: str, words: tuple[int, int] | None) -> list[str]:
        chosen = _with_task(settings, name, caption_length=words, max_captions=9)
        synthesize.run(chosen, name, tmp_path / "captions")
        return list(dict.fromkeys(row["id"] for row in _rows(tmp_path, name)))

    assert taken("rewrite", None) == [f"p{number}" for number in range(7)]
    assert taken("rewrite", (3, 16)) == ["p1", "p4", "p6"]
    assert taken("paraphrase_1", None) == ["p0", "p1", "p3", "p5", "p6"]
    with pytest.raises(
        InputError, match=r"synthesize\.tasks\.paraphrase_2\.caption_length: the task does not read captions"
    ):
        taken("paraphrase_2", (2, 15))


def test_the_published_wording_is_asked_where_the_settings_say_so(
    settings: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    own = {request.key for request in engine.asked}
    assert {role for request in engine.asked for role, _ in request.chat} == {"system", "user"}
    engine.asked.clear()
    synthesize.run(_with_task(settings, "paraphrase_1", prompt="published"), "paraphrase_1", tmp_path / "captions")
    assert {role for request in engine.asked for role, _ in request.chat} == {"user"}
    assert not own & {request.key for request in engine.asked}


def test_a_question_about_two_captions_keeps_both(settings: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    counts = synthesize.run(settings, "difference", tmp_path / "captions")
    rows = _rows(tmp_path, "difference")
    pairs = {row["id"]: row["caption"] for row in PAIRS.read(tmp_path / "pairs" / "train.parquet").to_pylist()}
    assert [row["id"] for row in rows] == ["p0", "p1", "p3", "p5", "p6"]
    for row in rows:
        assert row["other_id"] != row["id"]
        assert (row["source"], row["other_source"]) == (pairs[row["id"]], pairs[row["other_id"]])
        assert row["text"] in {f"{row['source']} / {row['other_source']} 0".upper(), None}
    assert counts.rejected == sum("say nothing" in {row["source"], row["other_source"]} for row in rows) > 0


def test_a_task_may_have_a_model_of_its_own(settings: Settings) -> None:
    models = {"usual": {"engine": "local", "adapter": "usual"}, "own": {"engine": "local", "adapter": "own"}}
    some = _with_task(_with(settings, llms=models, default_llm="usual"), "rewrite", llm="own").synthesize
    found: list[Any] = [engine_of(some, name) for name in ("paraphrase_1", "rewrite")]
    assert [engine.options.adapter for engine in found] == [Path("usual"), Path("own")]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({}, r"model 'm' is not in synthesize\.llms: add it, or choose one of none"),
        ({"m": {"engine": "locl"}}, r"synthesize\.llms\.m\.engine 'locl' is unknown: did you mean 'local'"),
        ({"m": {"engine": "local", "adaptor": "x"}}, r"llms\.m: unknown key 'adaptor': did you mean 'adapter'"),
        ({"m": {"engine": "local", "batch_size": 0}}, r"llms\.m: key 'batch_size': Input should be greater than 0"),
    ],
)
def test_a_wrong_model_is_named(settings: Settings, models: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_engine(_with(settings, llms=models).synthesize, "m")


def test_shards_store_answers_and_a_run_without_one_writes_the_table(
    settings: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    for number in range(3):
        synthesize.run(settings, "paraphrase_1", tmp_path / "captions", shard=Shard(number, 3))
        assert not (tmp_path / "captions").exists()
    asked = [request.key for request in engine.asked]
    assert len(asked) == len(set(asked)) == 8
    counts = synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    assert (counts.replayed, counts.generated) == (10, 0)
    synthesize.run(_with(settings, store=f"sqlite:///{tmp_path / 'new.db'}"), "paraphrase_1", tmp_path / "whole")
    files = [tmp_path / folder / "made" / "paraphrase_1.parquet" for folder in ("captions", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_question_that_fails_is_a_rejected_row_and_is_asked_again_by_the_next_run(
    settings: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    pairs = PAIRS.read(tmp_path / "pairs" / "train.parquet").to_pylist()
    pairs[0]["caption"] = "fail here"
    PAIRS.write(tmp_path / "pairs" / "train.parquet", {name: [row[name] for row in pairs] for name in pairs[0]})
    with pytest.raises(InputError, match=r"paraphrase_1: 2 of 10 questions failed .*max_failed_share \(0\.05\)"):
        synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    rows = _rows(tmp_path, "paraphrase_1")
    assert [(row["accepted"], row["reason"]) for row in rows[:2]] == [(False, "failed: HTTP 500 after 3 attempts")] * 2
    assert len(rows) == 10
    engine.asked.clear()
    assert synthesize.run(_with(settings, max_failed_share=0.2), "paraphrase_1", tmp_path / "captions").failed == 2
    assert len(engine.asked) == 2


def test_the_judge_keeps_or_rewrites_each_candidate_once(
    settings: Settings, engine: CountingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthesize.run(settings, "paraphrase_semclip", tmp_path / "captions")
    judge = CountingEngine("judge-1")
    monkeypatch.setattr(engines, "make_engine", lambda _settings, _model: judge)
    synthesize.run(settings, "judge_paraphrase", tmp_path / "captions")
    rows = _rows(tmp_path, "judge_paraphrase")
    outcomes = {row["source"]: (row["text"], row["verdict"], row["written_by"], row["reason"]) for row in rows}
    assert outcomes["one dog"] == ("ONE DOG 0", "yes", "generator", None)
    text, verdict, writer, reason = outcomes["two cats here"]
    assert (text.startswith("TWO CATS HERE"), verdict, writer, reason) == (True, "no", "judge", None)
    assert text != "TWO CATS HERE 0", "the judge answers again"
    assert outcomes["a red bus"][1:] == ("no", "judge", None), "neither word is not a yes"
    assert [request.task for request in judge.asked].count("paraphrase_semclip") == 2
    assert {bool(request.parse and request.parse("I say yes")) for request in judge.asked} == {False, True}
    assert all(row["other_source"] is None for row in rows)


def test_a_dry_run_counts_and_asks_nothing(
    settings: Settings,
    engine: CountingEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(synthesize, "load_checked", lambda: settings)
    synthesize.main("paraphrase_1", dry_run=True)
    assert "paraphrase_1: 10 questions to counting-1, 0 of them answered, at most 10 to ask" in capsys.readouterr().out
    assert engine.asked == []
    synthesize.run(settings, "paraphrase_1", tmp_path / "captions")
    synthesize.main("paraphrase_1", dry_run=True)
    assert "10 of them answered, at most 0 to ask" in capsys.readouterr().out


def test_without_a_task_the_command_runs_all_and_exports(
    settings: Settings,
    engine: CountingEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    track_in: Callable[[Path], None],
) -> None:
    tasks = {name: settings.synthesize.tasks[name] for name in ("rewrite", "difference")}
    some = _with(settings, tasks=tasks)
    monkeypatch.setattr(synthesize, "load_checked", lambda: some)
    track_in(tmp_path)
    synthesize.main(export=tmp_path / "all.parquet")
    assert {path.stem for path in (tmp_path / "data" / "captions" / "made").iterdir()} == set(tasks)
    assert pq.read_table(tmp_path / "all.parquet").num_rows == len(engine.asked) == 4 + 5
    runs = find_runs(some.dataset.name, "synthesize")
    assert {run.data.tags["encoder"]: run.data.metrics["generated"] for run in runs} == {"rewrite": 4, "difference": 5}
    [own] = [run for run in runs if run.data.tags["encoder"] == "rewrite"]
    assert own.data.tags["output.rewrite.sha256"] == file_hash(Path("data/captions/made/rewrite.parquet"))


def test_unknown_task_is_named(settings: Settings) -> None:
    with pytest.raises(InputError, match=r"no block synthesize\.tasks\.paraphrase_9"):
        synthesize.run(settings, "paraphrase_9")
