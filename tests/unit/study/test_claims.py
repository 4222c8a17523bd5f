"""The stage's page and table, and what it says of all encoders."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.settings import Settings
from components.evaluation.results import Folders
from components.study import claims as stage
from components.study.results import Results
from components.study.summary import comparison_over_seeds, forgotten, rank_for_all_needs
from tests.unit.study.conftest import AO, LOSS, TAU

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
    page = (tmp_path / "reports" / "own.html").read_text()
    assert "1 of 2 claims hold" in page
    assert "It gains &lt;b&gt;most&lt;/b&gt;." in page
    assert "Other conditions than the paper's: The base is smaller." in page
    assert "As expected." in page
    assert "seeds 0, 1, 2" in page
    table = (tmp_path / "reports" / "own.md").read_text()
    assert f"{AO}: better better than base by more than 5.0: +20.0 [+10.0, +30.0]" in table
    assert "| It gains. (A paper, table 1) Other conditions than the paper's: The base is smaller. | holds |" in table
    assert "| `better` |" in table


def test_an_encoder_for_all_needs_has_the_smallest_of_largest_shortfalls(results: Results) -> None:
    first, second = rank_for_all_needs(results, {"paraphrase": AO, "difference": LOSS, "unknown": "none/none"})
    assert (first.encoder, first.worst, first.met) == ("better", 0.0, 2)
    assert (second.encoder, second.met) == ("base", 0)
    assert second.worst == pytest.approx(0.2)
    assert list(second.needs) == ["paraphrase", "difference"]


def test_losses_against_the_first_encoder_are_told_worst_first(results: Results) -> None:
    comparison = comparison_over_seeds(results, [AO, TAU, LOSS, "none/none"])
    assert list(comparison.cells) == [AO, TAU, LOSS]
    assert forgotten(comparison) == {"better": []}
    turned = Results(dict(reversed(results.reports.items())), dict(reversed(results.scores.items())), results.evaluate)
    lost = forgotten(comparison_over_seeds(turned, [AO, LOSS]))
    assert [metric for metric, _ in lost["base"]] == [AO, LOSS]
