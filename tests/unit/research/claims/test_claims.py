"""Differences over seeds and queries, files of claims, their verdicts and their page."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from components.core.settings import Settings
from components.core.system.discovery import names_in
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.core.tables.files import content_hash
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.benchmarks.published import published_benchmarks
from components.evaluation.scoring.benchmark import Benchmark, Correlation, Scores
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.results import Folders, Report, Result, read_report, write_record, write_results
from components.evaluation.scoring.terminal import print_results
from research.claims import claims as stage
from research.claims import page as pages
from research.claims.page import counts
from research.claims.results import (
    ClaimValue,
    Results,
    comparison_over_seeds,
    rank_for_all_needs,
    read_results,
    regressions,
)
from research.claims.rules import Claim, ClaimPart, JudgedClaim, JudgedPart, judge, read_claims

AO, LOSS, TAU = "paraphrased_retrieval/ao_at_10", "geometry/caption_difference/distance", "caption_ratings/tau_c"
QUERIES = 200


def write_encoder(folders: Folders, name: str, seed: int, gain: float) -> None:
    """Values per query: those of the seed, `gain` higher; a distance `gain` lower; a correlation."""
    base = np.random.default_rng(seed).random(QUERIES) / 2
    gold = np.arange(QUERIES, dtype=np.float64) % 5
    noise = np.random.default_rng(7 + seed).normal(0, 2, QUERIES)
    correlation = Correlation("spearman", gold, (0.1 + gain) * gold + noise)
    scores = Scores({AO: base + gain, LOSS: base - gain}, correlations={TAU: correlation})
    metrics = {
        metric: Result(value=float(scores.values[metric].mean()), higher_is_better=metric == AO)
        for metric in (AO, LOSS)
    }
    metrics[TAU] = Result(value=0.0, higher_is_better=True)
    report = Report(encoder=name, protocol="p", data_hash="d", encoder_sha256=f"{name}{seed}", metrics=metrics)
    write_results(report, scores, folders.metrics, folders.per_query)


@pytest.fixture
def seeds(tmp_path: Path) -> dict[int, Folders]:
    """Seed -> folders of `base` and `better`, whose gain is 0.18, 0.2 and 0.22."""
    found = {}
    for seed in range(3):
        folders = Folders(reports=tmp_path / str(seed))
        write_encoder(folders, "base", seed, 0.0)
        write_encoder(folders, "better", seed, 0.18 + 0.02 * seed)
        found[seed] = folders
    return found


@pytest.fixture
def results(seeds: dict[int, Folders], settings: Settings) -> Results:
    """Them, read."""
    return read_results(["base", "better"], list(seeds.values()), settings.evaluate)


_FIRST = {
    *("paraclip_rankings", "paraclip_similarity", "paraclip_keeps", "paraclip_language_alone", "paraclip_balance"),
    *("pc_clip_differences", "pc_clip_others", "pc_clip_prompting", "pc_clip_geometry"),
    *("frozen_language_model", "frozen_loses", "alignment_rankings", "language_similarity", "alignment_depth"),
    *("semclip_negation", "semclip_keeps", "semclip_negation_alone", "semclip_delta"),
}
_FILE = """
families: {paraphrase: p/ao}
metrics: [p/ao]
claims: {one: {paper: p, says: s, parts: [{metric: p/ao, encoder: a, by: 0.0}]}}
"""


def test_the_files_of_the_project_name_encoders_and_metrics_that_there_are() -> None:
    settings = settings_with("claims")
    measured: dict[str, Benchmark] = {
        name: find_benchmark(name) for name in names_in("components.evaluation.benchmarks.project")
    }
    # No study scores it: such a claim is not measured, and its note says what a script found.
    measured["query_expansion"] = published_benchmarks()["query_expansion"]
    for name in settings.study.claims:
        claims = read_claims(name)
        parts = [part for claim in claims.claims.values() for part in claim.parts]
        named = {encoder for each in (*parts, *claims.plots) for encoder in each.encoders}
        assert named <= set(settings.compare_encoders)
        metrics = {part.metric for part in parts} | {part.less for part in parts} | set(claims.metrics)
        assert {metric for plot in claims.plots for metric in plot.metrics} <= metrics
        for metric in (metrics | set(claims.families.values())) - {""}:
            benchmark = next(found for known, found in measured.items() if metric.startswith(known))
            assert benchmark.metric(metric), metric

    assert ["base", *settings.study.encoders, *settings.study.mixes] == list(settings.compare_encoders)
    assert set(settings.study.encoders) == set(settings.methods)
    assert set(settings.study.mixes) == set(settings.mixes)


def test_a_changed_comparison_needs_an_id_and_the_pages_have_the_studys_numbers() -> None:
    """A comparison with a verdict is never replaced: comparisons.yaml has a hash of all that there ever were."""
    claims = read_claims("papers").claims
    found = {
        name: content_hash(*(part.model_dump_json() for part in claim.parts))[:16] for name, claim in claims.items()
    }
    known = yaml.safe_load((Path(__file__).parent / "comparisons.yaml").read_text("utf-8"))
    assert found == known, "give a changed comparison a new id, with `added`, and append its line to comparisons.yaml"
    # Claims that were there before the first verdicts, on 24 November 2026.
    first = {name for name, claim in claims.items() if not claim.added}
    assert first == _FIRST
    for name in claims.keys() - first:
        assert re.match(r"2026-\d\d-\d\d[:,] .", claims[name].added), name
    repo, claims = Path(__file__).parents[4], read_claims("papers").claims
    study = json.loads((repo / "docs/figures/study.json").read_text("utf-8"))
    verdicts = {claim["id"]: claim["verdict"] for claim in study["claims"]}
    assert verdicts.keys() == claims.keys()
    assert verdicts["query_expansion"] == "not measured"
    judged: Any = [SimpleNamespace(claim=claim, verdict=verdicts[name]) for name, claim in claims.items()]
    for page in ("README.md", "docs/claims.md"):
        assert counts(judged) in (repo / page).read_text("utf-8"), page


def test_wrong_files_are_named(tmp_path: Path) -> None:
    for part, message in (
        ({}, "own.yaml.*give one of better_than and not_worse_than"),
        ({"better_than": "b", "not_worse_than": "c"}, "own.yaml.*give one of"),
        ({"beter_than": "b"}, "own.yaml.*did you mean 'better_than'"),
        ({"better_than": "b", "by": -1}, "own.yaml.*by"),
        (None, "not valid YAML: line"),
    ):
        raw = yaml.safe_load(_FILE)
        raw["claims"]["one"]["parts"][0] |= part or {}
        (tmp_path / "own.yaml").write_text("claims: [" if part is None else yaml.safe_dump(raw))
        with pytest.raises(InputError, match=message):
            read_claims("own", tmp_path)
    with pytest.raises(InputError, match="choose one of own"):
        read_claims("onw", tmp_path)


def _part(by: float = 0.1, **compared: object) -> ClaimPart:
    compared = compared or {"better_than": "base"}
    return ClaimPart.model_validate({"metric": AO, "encoder": "better", "by": by} | compared)


def _found(low: float, high: float, *each: float) -> ClaimValue:
    return ClaimValue(Interval((low + high) / 2, low, high), each or ((low + high) / 2,))


def test_parts_need_interval_and_every_seed_and_a_claim_is_as_good_as_its_worst() -> None:
    for found, verdict in (
        (_found(0.11, 0.3), "holds"),
        (_found(0.11, 0.3, 0.25, 0.1), "undecided"),
        (_found(0.1, 0.3), "undecided"),
        (_found(-0.3, 0.09), "does not hold"),
        (_found(-0.3, 0.09, -0.2, 0.11), "undecided"),
        (_found(-0.3, 0.1), "undecided"),
        (None, "not measured"),
    ):
        assert JudgedPart(_part(), found).verdict == verdict, found
    kept = _part(not_worse_than="base")
    for low, high, verdict in ((-0.09, 0.3, "holds"), (-0.1, 0.3, "undecided"), (-0.4, -0.11, "does not hold")):
        assert JudgedPart(kept, _found(low, high)).verdict == verdict, low
    found = _found(-0.3, 0.09)
    assert JudgedPart(_part(), found, Interval(-0.1, -0.35, 0.12)).verdict == "undecided"
    assert JudgedPart(_part(), found, Interval(-0.1, -0.3, 0.099)).verdict == "does not hold"
    found = {"holds": _found(0.2, 0.3), "does not hold": _found(-0.2, 0), "undecided": _found(0, 0.3)}
    claim = Claim(paper="p", says="s", parts=(_part(),))
    for verdicts, verdict in (
        (("holds", "holds"), "holds"),
        (("holds", "undecided"), "undecided"),
        (("undecided", "not measured"), "not measured"),
        (("holds", "not measured", "does not hold"), "does not hold"),
    ):
        parts = tuple(JudgedPart(_part(), found.get(one)) for one in verdicts)
        assert JudgedClaim("c", claim, parts).verdict == verdict


def test_parts_are_measured_against_encoders_numbers_metrics_and_by_correlations(results: Results) -> None:
    parts = (_part(by=0.05), _part(by=0.25), _part(better_than="paraclip"))
    judged = judge("c", Claim(paper="p", says="s", parts=parts), results)
    assert [part.verdict for part in judged.parts] == ["holds", "undecided", "not measured"]
    value = results.value("base", AO)
    assert results.improvement("base", 0.25, AO).mean.value == pytest.approx(value.mean.value - 0.25)
    # Within an encoder AO less the distance is twice its gain.
    assert results.improvement("better", "base", AO, less=LOSS).mean.value == pytest.approx(0.4)
    found = results.improvement("better", "base", TAU)
    assert found.mean.value > 0
    assert found.mean.low < found.mean.value < found.mean.high
    assert results.value("base", TAU).mean.value == pytest.approx(np.mean(results.value("base", TAU).each))
    with pytest.raises(InputError, match="another encoder or with 0"):
        results.improvement("base", 0.5, TAU)


def test_a_gain_is_the_mean_of_the_seeds_with_the_interval_of_seeds_and_queries(results: Results) -> None:
    # The gain is the same for all queries, so that only seeds vary: 4.303 standard errors of three seeds.
    # Of the second metric less is better.
    reach = 4.302653 * 0.02 / math.sqrt(3)
    for metric in (AO, LOSS):
        found = results.improvement("better", "base", metric)
        assert found.each == pytest.approx((0.18, 0.2, 0.22))
        assert (found.mean.low, found.mean.high) == pytest.approx((0.2 - reach, 0.2 + reach), abs=1e-6)
    assert results.difference("better", "base", LOSS).mean.value == pytest.approx(-0.2)


def test_results_of_other_data_are_refused(seeds: dict[int, Folders], settings: Settings) -> None:
    report = read_report("better", seeds[2].metrics)
    write_record(seeds[2].metrics / "better.json", report.model_copy(update={"data_hash": "other"}))
    with pytest.raises(InputError, match=r"2/metrics/better.json is of other data"):
        read_results(["base", "better"], list(seeds.values()), settings.evaluate)


_CLAIMS = f"""
families: {{paraphrase: {AO}, difference: {LOSS}, unknown: none/none}}
metrics: [{AO}, {LOSS}, none/none]
plots:
  - {{title: Figure 1, encoders: [base, better], metrics: [{AO}]}}
  - {{title: Figure 2, encoders: [base, other], metrics: [{AO}]}}
claims:
  gain:
    paper: A paper, table 1
    says: It gains.
    conditions: The base is smaller.
    note: As expected.
    parts:
      - {{metric: {AO}, encoder: better, better_than: base, by: 0.05}}
  more:
    paper: A paper, table 2
    says: It gains <b>most</b>.
    added: "2026-01-02: another baseline."
    parts:
      - {{metric: {AO}, encoder: better, better_than: other, by: 0.05}}
"""


def test_page_and_table(
    seeds: dict[int, Folders], settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.yaml").write_text(_CLAIMS)
    # `other` has no results of any seed.
    study = settings.study.model_copy(update={"encoders": ("better", "other")})
    settings = settings.model_copy(update={"study": study})
    content = stage.run(settings, "own", seeds, tmp_path / "reports", tmp_path)
    assert [claim.verdict for claim in content.judged] == ["holds", "not measured"]
    page, table = ((tmp_path / "reports" / f"own.{kind}").read_text() for kind in ("html", "md"))
    conditions = "Other conditions than the paper's: The base is smaller."
    for text in (
        "1 of 2 claims hold",
        "Added 2026-01-02: another baseline.",
        "It gains &lt;b&gt;most&lt;/b&gt;.",
        conditions,
        "As expected.",
        "seeds 0, 1, 2",
        "Figure 1",
        "Not measured: other.",
    ):
        assert text in page
    assert f"{AO}: better better than base by more than 5.0: +20.0 [+15.0, +25.0]" in table
    assert f"| It gains. (A paper, table 1) {conditions} | holds |" in table
    assert "| better |" in table
    numbers = "Of 1 claims written before the first verdicts 1 hold. Of 1 claims added later 1 are not measured."
    assert numbers in page
    assert numbers in table
    print_results(pages.verdicts(content))
    lines = [" ".join(line.strip("│ ").split()) for line in capsys.readouterr().out.splitlines()]
    assert f"{AO}: better better than base by more than 5.0 │ holds │ +20.0 [+15.0, +25.0]" in lines
    assert "not measured: It gains <b>most<" in " ".join(lines)
    figures = json.loads((tmp_path / "reports" / "own.json").read_text())
    assert figures["encoders"]["better"][AO]["difference"] == [20.0, 15.03, 24.97]
    assert "difference" not in figures["encoders"]["base"][AO]
    assert len(figures["encoders"]["base"][AO]["seeds"]) == len(figures["seeds"]) == 3
    assert [(claim["id"], claim["verdict"]) for claim in figures["claims"]] == [
        ("gain", "holds"),
        ("more", "not measured"),
    ]


def test_encoders_are_ranked_for_all_needs_and_regressions_listed(results: Results) -> None:
    first, second = rank_for_all_needs(results, {"paraphrase": AO, "difference": LOSS, "unknown": "none/none"})
    assert (first.encoder, first.worst, first.possibly_best) == ("better", 0.0, 2)
    assert (second.encoder, second.possibly_best) == ("base", 0)
    assert second.worst == pytest.approx(0.2)
    assert list(second.needs) == ["paraphrase", "difference"]
    comparison = comparison_over_seeds(results, [AO, TAU, LOSS, "none/none"])
    assert list(comparison.cells) == [AO, TAU, LOSS]
    assert regressions(comparison) == {"better": []}
    turned = Results(dict(reversed(results.reports.items())), dict(reversed(results.scores.items())), results.evaluate)
    lost = regressions(comparison_over_seeds(turned, [AO, LOSS]))
    assert [metric for metric, _ in lost["base"]] == [AO, LOSS]


def test_many_are_left_out_as_the_best_one_rarely_together(seeds: dict[int, Folders], settings: Settings) -> None:
    for folders in seeds.values():
        for name in "abcdef":
            write_encoder(folders, name, int(folders.reports.name), 0.11)
    few = read_results(["base", "better"], list(seeds.values()), settings.evaluate)
    many = read_results(["base", "better", *"abcdef"], list(seeds.values()), settings.evaluate)
    width = {}
    for results in (few, many):
        found = {one.encoder: one.needs["p"].shortfall for one in rank_for_all_needs(results, {"p": AO})}
        width[len(found)] = found["base"].half_width / (0.02 / math.sqrt(3))
    # Student's quantiles of two degrees at 5%, and at 5% by seven comparisons, one-sided.
    assert width == pytest.approx({2: 2.92, 8: 8.27}, rel=0.01)
