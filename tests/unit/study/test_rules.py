"""Files of claims are read strictly, and the project's own can be decided by what it measures."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from components.benchmarks.benchmark import Benchmark
from components.benchmarks.embedded import find_benchmark
from components.benchmarks.published import find_published
from components.core.discovery import names_in
from components.core.errors import InputError
from components.core.profiles import settings_with
from components.study.rules import CLAIMS, Claims, read_claims

_FILE = {
    "families": {"paraphrase": "p/ao"},
    "metrics": ["p/ao"],
    "claims": {"one": {"paper": "p", "says": "s", "parts": [{"metric": "p/ao", "encoder": "a", "by": 0.0}]}},
}


def test_the_files_of_the_project_name_encoders_and_metrics_that_there_are() -> None:
    settings = settings_with("claims")
    measured: dict[str, Benchmark] = {name: find_benchmark(name) for name in names_in("components.benchmarks.embedded")}
    # No study scores it: such a claim is not measured, and its note says what a script found.
    measured["query_expansion"] = find_published("query_expansion")
    for name in settings.study.claims:
        claims = read_claims(name)
        parts = [part for claim in claims.claims.values() for part in claim.parts]
        assert {encoder for part in parts for encoder in part.encoders} <= set(settings.encoders)
        metrics = {part.metric for part in parts} | {part.less for part in parts} | set(claims.metrics)
        for metric in (metrics | set(claims.families.values())) - {""}:
            benchmark = next(found for known, found in measured.items() if metric.startswith(known))
            assert benchmark.metric(metric), metric


def test_all_methods_are_trained_again() -> None:
    settings = settings_with("claims")
    assert ["base", *settings.study.encoders, *settings.study.mixes] == list(settings.encoders)
    assert set(settings.study.encoders) == set(settings.methods)
    assert set(settings.study.mixes) == set(settings.mixes)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({}, "give one of better_than and not_worse_than"),
        ({"better_than": "b", "not_worse_than": "c"}, "give one of"),
        ({"beter_than": "b"}, "did you mean 'better_than'"),
        ({"better_than": "b", "by": -1}, "by"),
    ],
)
def test_a_wrong_part_is_told_by_its_file(tmp_path: Path, part: dict[str, object], told: str) -> None:
    raw = yaml.safe_load(yaml.safe_dump(_FILE))
    raw["claims"]["one"]["parts"][0] |= part
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(InputError, match=f"own.yaml.*{told}"):
        read_claims("own", tmp_path)


def test_an_unknown_file_and_a_broken_one(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("claims: [")
    with pytest.raises(InputError, match="no valid YAML: line"):
        read_claims("own", tmp_path)
    with pytest.raises(InputError, match="choose one of own"):
        read_claims("onw", tmp_path)
    assert (CLAIMS / "papers.yaml").exists()
    assert isinstance(read_claims("papers"), Claims)
