"""Differences over seeds and queries, and the page of claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.evaluation.results import Folders, read_report, write_record
from components.study import claims as stage
from components.study.results import Results, comparison_over_seeds, rank_for_all_needs, read_results, regressions
from tests.unit.study.conftest import AO, LOSS, TAU


def test_a_gain_is_the_mean_of_the_seeds_and_its_interval_is_of_drawn_seeds(results: Results) -> None:
    # The gain is the same for all queries, so only the drawn seeds move it: three draws of 0.1, 0.2 and 0.3, of which
    # one in 27 is the lowest three times. Of the second metric less is better.
    for metric in (AO, LOSS):
        found = results.improvement("better", "base", metric)
        assert found.each == pytest.approx((0.1, 0.2, 0.3))
        assert (found.mean.value, found.mean.low, found.mean.high) == pytest.approx((0.2, 0.1, 0.3))
        assert found.p == pytest.approx(1 / (results.evaluate.bootstrap + 1))
    assert results.difference("better", "base", LOSS).mean.value == pytest.approx(-0.2)


def test_a_number_or_another_metric_is_subtracted(results: Results) -> None:
    value = results.value("base", AO)
    assert results.improvement("base", 0.25, AO).mean.value == pytest.approx(value.mean.value - 0.25)
    assert results.improvement("base", 0.25, AO).p is None
    # Within an encoder AO less the distance is twice its gain.
    assert results.improvement("better", "base", AO, less=LOSS).mean.value == pytest.approx(0.4)


def test_correlations_have_a_difference_and_no_p(results: Results) -> None:
    found = results.improvement("better", "base", TAU)
    assert found.mean.value > 0
    assert found.mean.low < found.mean.value < found.mean.high
    assert found.p is None
    assert results.value("base", TAU).mean.value == pytest.approx(np.mean(results.value("base", TAU).each))
    with pytest.raises(InputError, match="another encoder or with 0"):
        results.improvement("base", 0.5, TAU)


def test_results_of_other_data_are_refused(seeds: dict[int, Folders], settings: Settings) -> None:
    report = read_report("better", seeds[2].metrics)
    write_record(seeds[2].metrics / "better.json", report.model_copy(update={"data_hash": "other"}))
    with pytest.raises(InputError, match=r"2/metrics/better.json is of other data"):
        read_results(["base", "better"], list(seeds.values()), settings.evaluate)


_CLAIMS = f"""
families: {{paraphrase: {AO}, difference: {LOSS}, unknown: none/none}}
metrics: [{AO}, {LOSS}, none/none]
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
    parts:
      - {{metric: {AO}, encoder: better, better_than: other, by: 0.05}}
"""


def test_page_and_table(seeds: dict[int, Folders], settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(_CLAIMS)
    settings = settings.model_copy(update={"study": settings.study.model_copy(update={"encoders": ("better",)})})
    content = stage.run(settings, "own", seeds, tmp_path / "reports", tmp_path)
    assert [claim.verdict for claim in content.judged] == ["holds", "not measured"]
    page, table = ((tmp_path / "reports" / f"own.{kind}").read_text() for kind in ("html", "md"))
    conditions = "Other conditions than the paper's: The base is smaller."
    for text in (
        "1 of 2 claims hold",
        "It gains &lt;b&gt;most&lt;/b&gt;.",
        conditions,
        "As expected.",
        "seeds 0, 1, 2",
    ):
        assert text in page
    assert f"{AO}: better better than base by more than 5.0: +20.0 [+10.0, +30.0]" in table
    assert f"| It gains. (A paper, table 1) {conditions} | holds |" in table
    assert "| `better` |" in table


def test_an_encoder_for_all_needs_has_the_smallest_of_largest_shortfalls(results: Results) -> None:
    first, second = rank_for_all_needs(results, {"paraphrase": AO, "difference": LOSS, "unknown": "none/none"})
    assert (first.encoder, first.worst, first.possibly_best) == ("better", 0.0, 2)
    assert (second.encoder, second.possibly_best) == ("base", 0)
    assert second.worst == pytest.approx(0.2)
    assert list(second.needs) == ["paraphrase", "difference"]


def test_regressions_are_listed_with_the_largest_loss_first(results: Results) -> None:
    comparison = comparison_over_seeds(results, [AO, TAU, LOSS, "none/none"])
    assert list(comparison.cells) == [AO, TAU, LOSS]
    assert regressions(comparison) == {"better": []}
    turned = Results(dict(reversed(results.reports.items())), dict(reversed(results.scores.items())), results.evaluate)
    lost = regressions(comparison_over_seeds(turned, [AO, LOSS]))
    assert [metric for metric, _ in lost["base"]] == [AO, LOSS]
