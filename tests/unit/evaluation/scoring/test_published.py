"""A published benchmark is scored once for each encoder, protocol version and data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.published import PublishedBenchmark
from components.evaluation.report.published.tables import paired_tables
from components.evaluation.scoring import published
from components.evaluation.scoring.benchmark import Benchmark, Correlation, Metric, Scores
from components.evaluation.scoring.published import Plan, run_all, run_one
from components.evaluation.scoring.published_context import PublishedContext
from components.evaluation.scoring.results import all_published, published_file, read_published
from tests.support.toy_context import ToyEncoder

TABLE: Mapping[str, Any] = {"red": (1, 0, 0), "green": (0, 1, 0)}


def _score(context: PublishedContext) -> Scores:
    rows = context.read_json("rows.json")
    context.expect("rows.json", len(rows), 3)
    similar = context.texts(rows) @ context.texts(["red"])[0]
    gold = np.arange(len(rows), dtype=np.float64)
    return Scores(
        {"colours/red": similar.astype(np.float64), "colours/none": np.empty(0)},
        correlations={"colours/spearman": Correlation("spearman", gold, -similar.astype(np.float64))},
        scalars={"colours/spread": float(similar.std())},
    )


def _metric(name: str, higher: bool = True) -> Metric:
    return Metric(name, higher_is_better=higher, ties="none")


ROWS = RequiredFile("rows.json", "3 rows", "1 kB", "CC0", "nobody")
BENCHMARK = Benchmark(
    name="colours", version=1, protocol="made up", citation="nobody", folder="colours",
    needs=(ROWS, RequiredFile("more", "more", "1 kB", "CC0", "x", True)),
    metrics=(_metric("red"), _metric("none"), _metric("spearman"), _metric("spread", higher=False)),
    score=_score, text_only=True, options={"judge": "who judges"},
)  # fmt: skip
UNDER_TEST = EncoderUnderTest("toy", ToyEncoder(TABLE), "sha")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "colours").mkdir()
    (tmp_path / "colours" / "rows.json").write_text(json.dumps(["red", "green", "green"]))
    return Plan(data=tmp_path, results=tmp_path / "results", bootstrap=50)


def test_values_intervals_correlations_and_scalars(plan: Plan) -> None:
    report = run_one(UNDER_TEST, BENCHMARK, plan).report
    assert report == read_published(plan.results / published_file("toy", UNDER_TEST.sha256, "colours"))
    assert list(report.metrics) == ["colours/red", "colours/spearman", "colours/spread"]
    red, spread = report.metrics["colours/red"], report.metrics["colours/spread"]
    assert (red.value, red.queries, red.higher_is_better) == (pytest.approx(1 / 3), 3, True)
    assert red.ci95 is report.metrics["colours/spearman"].ci95 is None, "three rows are too few for an interval"
    assert report.metrics["colours/spearman"].value == pytest.approx(0.866, abs=1e-3)
    assert (spread.ci95, spread.higher_is_better) == (None, False)


def test_a_result_is_kept_until_encoder_version_data_or_options_change(plan: Plan) -> None:
    def outcome(
        under_test: EncoderUnderTest = UNDER_TEST, benchmark: PublishedBenchmark = BENCHMARK, **changes: Any
    ) -> str:
        return run_one(under_test, benchmark, replace(plan, **changes)).state

    assert [outcome(), outcome()] == ["scored", "kept"]
    assert outcome(options={"for another benchmark": "x"}) == "kept"
    assert outcome(overwrite=True) == "scored"
    # Results of other weights do not replace these.
    assert [outcome(replace(UNDER_TEST, sha256="other")), outcome()] == ["scored", "kept"]
    assert [outcome(benchmark=replace(BENCHMARK, version=2)), outcome()] == ["scored", "scored"]
    judge = plan.data / "judge.json"
    for value in ("llm", str(judge), f"ViT:{judge}"):
        judge.write_text("1")
        assert [outcome(options={"judge": value}) for _ in range(2)] == ["scored", "kept"], value
        judge.write_text("2")
        assert outcome(options={"judge": value}) == ("kept" if value == "llm" else "scored"), value
    (plan.data / "colours" / "rows.json").write_text(json.dumps(["green", "green", "red"]))
    assert [outcome(dry_run=True), outcome()] == ["would be scored", "scored"]


def test_other_bytes_of_the_same_size_are_other_data(plan: Plan) -> None:
    folder = plan.data / "set"
    (folder / "images").mkdir(parents=True)
    needs = (RequiredFile(".", "images and labels", "1 kB", "CC0", "nobody"),)
    benchmark = replace(BENCHMARK, folder="set", needs=needs)
    files = [folder / name for name in ("labels.txt", "images/0.tar", "images/classes", "images/0.jpg")]
    for path in files:
        path.write_bytes(b"one")
    for path in files:
        before, times = benchmark.data_hash(plan.data), path.stat()
        path.write_bytes(b"two")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        # Of pictures only names and sizes count: there may be a million.
        assert (benchmark.data_hash(plan.data) == before) == (path.suffix == ".jpg")
    before = benchmark.data_hash(plan.data)
    (folder / "images" / "0.jpg").write_bytes(b"three")
    assert benchmark.data_hash(plan.data) != before


def test_partial_results_are_marked_and_do_not_replace_whole_ones(plan: Plan) -> None:
    (plan.data / "colours" / "rows.json").write_text(json.dumps(["red", "green"]))
    with pytest.raises(InputError, match=r"rows.json: 2 found, 3 published: .*--allow-partial"):
        run_one(UNDER_TEST, BENCHMARK, plan)
    partial = replace(plan, allow_partial=True)
    assert [run_one(UNDER_TEST, BENCHMARK, partial).state for _ in range(2)] == ["scored", "kept"]
    assert all_published(plan.results)[0].partial == ("rows.json: 2 found, 3 published",)
    with pytest.raises(InputError, match="2 found, 3 published"):
        run_one(UNDER_TEST, BENCHMARK, plan)


def test_only_whole_results_of_trained_encoders_are_logged(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[Path, Mapping[str, float]]] = []
    monkeypatch.setattr(published, "add_metrics", lambda folder, metrics: logged.append((folder, metrics)))
    run_one(UNDER_TEST, BENCHMARK, plan)
    trained = replace(UNDER_TEST, name="mine", folder=Path("models/mine"))
    report = run_one(trained, BENCHMARK, plan).report
    (plan.data / "colours" / "rows.json").write_text(json.dumps(["red"]))
    run_one(trained, BENCHMARK, replace(plan, allow_partial=True))
    assert logged == [(Path("models/mine"), {name: value.value for name, value in report.metrics.items()})]


def test_questions_and_groups_without_values_are_kept(plan: Plan) -> None:
    def score(context: PublishedContext) -> Scores:
        context.lists["class_pairs"] = [("crab", "red \u2028 lobster"), ("lobster", "crab")]
        context.left_out.append("comparative: no texts")
        context.expect("rows", 0, 1)
        return Scores({"colours/red": np.ones(2)})

    benchmark = replace(BENCHMARK, score=score)
    lists = plan.results / "class_pairs" / "toy" / "colours.tsv"
    with pytest.raises(InputError, match="rows: 0 found"):
        run_one(UNDER_TEST, benchmark, plan)
    assert lists.read_text() == "crab\tred lobster\nlobster\tcrab\n"
    run_one(UNDER_TEST, benchmark, replace(plan, allow_partial=True))
    (report,) = all_published(plan.results)
    assert report.left_out == ("comparative: no texts",)


def test_a_failing_benchmark_does_not_stop_the_others(plan: Plan) -> None:
    elsewhere = replace(BENCHMARK, name="elsewhere", folder="elsewhere")
    seen = replace(BENCHMARK, name="seen", text_only=False)
    outcomes = run_all(UNDER_TEST, [elsewhere, seen, BENCHMARK], plan)
    assert [outcome.state for outcome in outcomes] == ["failed", "failed", "scored"]
    assert "rows.json (3 rows, 1 kB, licence: CC0, from nobody)" in outcomes[0].fault
    assert "more" not in outcomes[0].fault
    assert "'toy' only embeds texts" in outcomes[1].fault
    assert [report.benchmark for report in all_published(plan.results)] == ["colours"]


def test_two_encoders_are_compared_on_the_same_queries(plan: Plan) -> None:
    rows = ["red", "green"] * 50
    (plan.data / "colours" / "rows.json").write_text(json.dumps(rows))
    whole = replace(plan, allow_partial=True)
    other = EncoderUnderTest("other", ToyEncoder({"red": (1, 0, 0), "green": (1, 0.2, 0)}), "other")
    for under_test in (UNDER_TEST, other):
        run_one(under_test, BENCHMARK, whole)
    reports = all_published(plan.results)
    (table,) = paired_tables(reports, "toy", plan.results)
    assert table.columns == ("metric", "other", "toy", "difference", "p")
    rows = {row.name: row.cells for row in table.rows}
    assert rows.keys() == {"colours/red", "colours/spearman"}
    value, against, difference, p = rows["colours/red"]
    assert difference.verdict == "better"
    assert difference.value.value == pytest.approx(value.value.value - against.value.value)
    assert 0 < p.value.value < 0.01
    assert (rows["colours/spearman"][2].verdict, rows["colours/spearman"][3]) == ("", None)
    with pytest.raises(InputError, match="'nobody' has no results: choose one of 'other', 'toy'"):
        paired_tables(reports, "nobody", plan.results)
    for change in ({"data_hash": "x"}, {"version": 2}, {"options": {"judge": "llm"}}):
        with pytest.raises(InputError, match="different data, options or versions of colours"):
            paired_tables([reports[0], reports[1].model_copy(update=change)], "toy", plan.results)


def test_captions_of_one_picture_are_one_unit_and_exchanged_together(plan: Plan) -> None:
    def score(context: PublishedContext) -> Scores:
        found = np.asarray(context.texts(["red"])[0, 0] * np.repeat([1.0, 0.0], 20))
        return Scores({"colours/red": found}, pictures={"colours/red": np.repeat([0, 1], 20)})

    benchmark = replace(BENCHMARK, score=score)
    report = run_one(UNDER_TEST, benchmark, plan).report
    # Two pictures, one of which is always found, are too few for an interval.
    assert report.metrics["colours/red"].ci95 is None
    other = replace(UNDER_TEST, name="other", encoder=ToyEncoder({"red": (0, 1, 0)}), sha256="other")
    run_one(other, benchmark, plan)
    (table,) = paired_tables(all_published(plan.results), "other", plan.results)
    (*_, difference, p) = table.rows[0].cells
    assert difference.text == "+50.0 [too few queries]"
    # Twenty queries would be more than chance; one picture is not.
    assert p.value.value > 0.9
