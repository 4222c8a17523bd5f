"""The synthesize stage over a store and an engine that counts what it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from components.captions import synthesize
from components.captions.engines import make_engine
from components.captions.engines.embedded import EmbeddedEngine
from components.captions.store import Request
from components.errors import InputError
from components.records import PAIRS
from components.settings import Settings


class CountingEngine:
    """Answers with the text in capitals, in batches of two, and dies when told to."""

    model = "counting-1"

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.die_after: int | None = None

    def answer(self, requests: Sequence[Request]) -> Iterator[list[tuple[Request, str]]]:
        for start in range(0, len(requests), 2):
            if self.die_after is not None and start >= self.die_after:
                raise RuntimeError("killed")
            batch = list(requests[start : start + 2])
            self.asked += batch
            yield [(request, self._reply(request)) for request in batch]

    def _reply(self, request: Request) -> str:
        texts = request.messages[-1]["content"].split('"')[1::2]
        return "" if "say nothing" in texts else f"{' / '.join(texts).upper()} {request.attempt}"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> CountingEngine:
    counting = CountingEngine()
    monkeypatch.setattr(synthesize, "make_engine", lambda _settings, _asked: counting)
    return counting


@pytest.fixture
def world(tmp_path: Path, raw_params: dict[str, Any]) -> Settings:
    captions = ["one dog", "two cats here", "x", "say nothing", "word " * 16, "one dog", "a red bus"]
    pairs = {"id": [f"p{n}" for n in range(7)], "image": [b"i"] * 7, "caption": captions, "facts": [None] * 7}
    PAIRS.write(tmp_path / "pairs" / "train.parquet", pairs)
    raw_params["synthesize"] |= {
        "captions": 5,
        "store": f"sqlite:///{tmp_path / 'store.db'}",
        "replay": None,
        "tasks": {
            "paraphrase_1": {"input": str(tmp_path / "pairs" / "train.parquet"), "samples": 2},
            "paraphrase_2": {"input": str(tmp_path / "captions" / "paraphrase_1.parquet")},
            "rewrite": {"input": str(tmp_path / "pairs" / "train.parquet"), "captions": 2, "samples": 2},
            "difference": {"input": str(tmp_path / "pairs" / "train.parquet")},
        },
    }
    return Settings.model_validate(raw_params)


def test_every_usable_caption_gets_its_samples(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    counts = synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    rows = pq.read_table(tmp_path / "captions" / "paraphrase_1.parquet").to_pylist()
    assert [(row["id"], row["sample"]) for row in rows] == [
        (pair, sample) for pair in ("p0", "p1", "p3", "p5", "p6") for sample in (0, 1)
    ]
    assert rows[0]["text"] == "ONE DOG 0"
    assert [row["reason"] for row in rows if row["id"] == "p3"] == ["unparsable", "unparsable"]
    assert (counts.replayed, counts.generated, counts.rejected) == (0, 10, 2)


def test_equal_questions_are_asked_once(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    assert len(engine.asked) == len({request.key for request in engine.asked}) == 8


def test_a_second_run_asks_nothing(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    first = (tmp_path / "captions" / "paraphrase_1.parquet").read_bytes()
    engine.asked.clear()
    counts = synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    assert engine.asked == []
    assert (counts.replayed, counts.generated) == (10, 0)
    assert (tmp_path / "captions" / "paraphrase_1.parquet").read_bytes() == first


def test_an_interrupted_run_keeps_its_answers(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    engine.die_after = 4
    with pytest.raises(RuntimeError):
        synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    assert not (tmp_path / "captions").exists()
    engine.die_after = None
    counts = synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    assert len(engine.asked) == len({request.key for request in engine.asked}) == 8
    assert counts.generated < 10


def test_the_second_step_rewrites_the_first_ones_answers(
    world: Settings, engine: CountingEngine, tmp_path: Path
) -> None:
    synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    synthesize.run(world, "paraphrase_2", tmp_path / "captions")
    rows = pq.read_table(tmp_path / "captions" / "paraphrase_2.parquet").to_pylist()
    assert [(row["id"], row["sample"], row["source"]) for row in rows[:2]] == [
        ("p0", 0, "ONE DOG 0"),
        ("p0", 1, "ONE DOG 1"),
    ]
    assert "p3" not in {row["id"] for row in rows}


def test_replay_comes_first(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    from components.captions.store import GenerationStore

    synthesize.run(world, "paraphrase_1", tmp_path / "captions")
    store = GenerationStore(world.synthesize.store)
    store.export_parquet(tmp_path / "export.parquet")
    other = world.synthesize.model_copy(
        update={"store": f"sqlite:///{tmp_path / 'new.db'}", "replay": tmp_path / "export.parquet"}
    )
    engine.asked.clear()
    counts = synthesize.run(world.model_copy(update={"synthesize": other}), "paraphrase_1", tmp_path / "again")
    assert engine.asked == []
    assert counts.replayed == 10


def test_a_task_may_take_fewer_captions(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    synthesize.run(world, "rewrite", tmp_path / "captions")
    rows = pq.read_table(tmp_path / "captions" / "rewrite.parquet").to_pylist()
    assert [(row["id"], row["sample"]) for row in rows] == [("p0", 0), ("p0", 1), ("p1", 0), ("p1", 1)]


def test_a_question_about_two_captions_keeps_both(world: Settings, engine: CountingEngine, tmp_path: Path) -> None:
    counts = synthesize.run(world, "difference", tmp_path / "captions")
    rows = pq.read_table(tmp_path / "captions" / "difference.parquet").to_pylist()
    pairs = {row["id"]: row["caption"] for row in PAIRS.read(tmp_path / "pairs" / "train.parquet").to_pylist()}
    assert [row["id"] for row in rows] == ["p0", "p1", "p3", "p5", "p6"]
    for row in rows:
        assert row["other_id"] != row["id"]
        assert (row["source"], row["other_source"]) == (pairs[row["id"]], pairs[row["other_id"]])
        assert row["text"] in {f"{row['source']} / {row['other_source']} 0".upper(), None}
    assert counts.rejected == sum("say nothing" in {row["source"], row["other_source"]} for row in rows) > 0


def test_a_task_may_have_an_adapter_of_its_own(world: Settings) -> None:
    base = world.synthesize.model_copy(update={"adapter": Path("usual")})
    own = base.tasks["rewrite"].model_copy(update={"adapter": Path("own")})
    engines = [make_engine(base, asked) for asked in (base.tasks["paraphrase_1"], own)]
    assert [engine.adapter for engine in engines if isinstance(engine, EmbeddedEngine)] == [Path("usual"), Path("own")]


def test_without_a_task_the_command_runs_all_and_exports(
    world: Settings, engine: CountingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {name: world.synthesize.tasks[name] for name in ("rewrite", "difference")}
    some = world.model_copy(update={"synthesize": world.synthesize.model_copy(update={"tasks": tasks})})
    monkeypatch.setattr(synthesize, "load_settings", lambda: some)
    monkeypatch.chdir(tmp_path)
    synthesize.main(export=tmp_path / "all.parquet")
    assert {path.stem for path in (tmp_path / "data" / "captions").iterdir()} == set(tasks)
    assert pq.read_table(tmp_path / "all.parquet").num_rows == len(engine.asked) == 4 + 5


def test_unknown_task_is_named(world: Settings) -> None:
    with pytest.raises(InputError, match=r"no block synthesize\.tasks\.paraphrase_9"):
        synthesize.run(world, "paraphrase_9")
