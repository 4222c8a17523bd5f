"""Differences over seeds and queries."""

from __future__ import annotations

import numpy as np
import pytest

from components.core.errors import InputError
from components.core.settings import Settings
from components.evaluation.results import Folders, read_report, write_record
from components.study.results import Results, read_results
from tests.unit.study.conftest import AO, LOSS, TAU


def test_a_gain_is_the_mean_of_the_seeds_and_its_interval_is_of_drawn_seeds(results: Results) -> None:
    found = results.improvement("better", "base", AO)
    assert found.each == pytest.approx((0.1, 0.2, 0.3))
    # The gain is the same for all queries, so only the drawn seeds move it: three draws of 0.1, 0.2 and 0.3, of which
    # one in 27 is the lowest three times.
    assert found.mean.value == pytest.approx(0.2)
    assert (found.mean.low, found.mean.high) == pytest.approx((0.1, 0.3))
    assert found.p == pytest.approx(1 / (results.evaluate.bootstrap + 1))


def test_of_a_metric_that_should_be_low_less_is_better(results: Results) -> None:
    assert results.improvement("better", "base", LOSS).mean.value == pytest.approx(0.2)
    assert results.difference("better", "base", LOSS).mean.value == pytest.approx(-0.2)
    low, high = (getattr(results.improvement("better", "base", LOSS).mean, end) for end in ("low", "high"))
    assert low == pytest.approx(0.1)
    assert high == pytest.approx(0.3)


def test_a_number_is_taken_off(results: Results) -> None:
    value = results.value("base", AO)
    assert results.improvement("base", 0.25, AO).mean.value == pytest.approx(value.mean.value - 0.25)
    assert results.improvement("base", 0.25, AO).p is None


def test_another_metric_is_taken_off_on_both_sides(results: Results) -> None:
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


def test_what_was_not_measured_is_known(results: Results) -> None:
    assert results.measures("base", AO)
    assert not results.measures("base", "zero_shot/top1")
    assert not results.measures("paraclip", AO)


def test_results_of_other_data_are_refused(seeds: dict[int, Folders], settings: Settings) -> None:
    report = read_report("better", seeds[2].metrics)
    write_record(seeds[2].metrics / "better.json", report.model_copy(update={"data_hash": "other"}))
    with pytest.raises(InputError, match=r"2/metrics/better.json is of other data"):
        read_results(["base", "better"], list(seeds.values()), settings.evaluate)
