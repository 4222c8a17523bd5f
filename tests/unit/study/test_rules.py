"""Files of claims are read strictly, the project's own name existing metrics, and verdicts follow the intervals."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from components.benchmarks.embedded import find_benchmark
from components.benchmarks.published import find_published
from components.benchmarks.scoring.benchmark import Benchmark
from components.benchmarks.scoring.bootstrap import Interval
from components.core.system.discovery import names_in
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.study.results import ClaimValue, Results
from components.study.rules import Claim, ClaimPart, JudgedClaim, JudgedPart, judge, read_claims
from tests.unit.study.conftest import AO

_FILE = """
families: {paraphrase: p/ao}
metrics: [p/ao]
claims: {one: {paper: p, says: s, parts: [{metric: p/ao, encoder: a, by: 0.0}]}}
"""


def test_the_files_of_the_project_name_encoders_and_metrics_that_there_are() -> None:
    settings = settings_with("claims")
    measured: dict[str, Benchmark] = {name: find_benchmark(name) for name in names_in("components.benchmarks.embedded")}
    # No study scores it: such a claim is not measured, and its note says what a script found.
    measured["query_expansion"] = find_published("query_expansion")
    for name in settings.study.claims:
        claims = read_claims(name)
        parts = [part for claim in claims.claims.values() for part in claim.parts]
        assert {encoder for part in parts for encoder in part.encoders} <= set(settings.compare_encoders)
        metrics = {part.metric for part in parts} | {part.less for part in parts} | set(claims.metrics)
        for metric in (metrics | set(claims.families.values())) - {""}:
            benchmark = next(found for known, found in measured.items() if metric.startswith(known))
            assert benchmark.metric(metric), metric

    assert ["base", *settings.study.encoders, *settings.study.mixes] == list(settings.compare_encoders)
    assert set(settings.study.encoders) == set(settings.methods)
    assert set(settings.study.mixes) == set(settings.mixes)


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


def test_the_interval_and_every_seed_must_exceed_the_bound() -> None:
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


def test_a_claim_is_as_good_as_its_worst_part() -> None:
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


def test_parts_are_measured(results: Results) -> None:
    parts = (_part(by=0.05), _part(by=0.25), _part(better_than="paraclip"))
    judged = judge("c", Claim(paper="p", says="s", parts=parts), results)
    assert [part.verdict for part in judged.parts] == ["holds", "undecided", "not measured"]
