"""A refusal names the cause that the numbers show, and one thing to try."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.tables.files import write_json
from components.core.tables.records import PARAPHRASES
from components.registry.promotion import promote
from components.registry.refusal import Numbers, cause
from tests.support.registry_project import EXAMPLES, SUMMARY, SUMMARY_FILE, Project

FLAT = Numbers(
    value=0.5, gain=-0.01, wanted=None, lost={}, unshown={}, accepted=5000, rows=9000, reason="", similarity=0.8
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "none of the usual causes: -0.0100 with 5,000 rows: try other values of lr and epochs by `cliptune tune`"),
        ({"lost": {"a": 0.01, "b": 0.03}}, "forgetting: b fell by 0.0300 more than its guard allows: halve `lr`"),
        ({"accepted": 300, "rows": 400, "reason": "echo"}, "accepted rows: 300 of 400, most often for echo: raise"),
        ({"accepted": 2000, "rows": 9000}, "too few accepted rows: 2,000 of 9,000: raise synthesize.max_captions"),
        ({"gain": 0.01, "wanted": 4000}, r"gain of \+0.0100 may be chance; if it is .* about 4,000 test queries"),
        ({"unshown": {"a": 3000, "b": 9000}}, "the test set is too small for the guard b: about 9,000 queries"),
        ({"similarity": 0.97}, r"too similar to the originals \(mean cosine 0.97\): raise their `temperature`"),
        ({"similarity": None}, "none of the usual causes"),
        ({"value": 0.9}, "the base already agrees: 0.9000 leaves little to gain"),
        # One line: what was lost comes first.
        ({"lost": {"a": 0.01}, "accepted": 3, "value": 0.9}, "forgetting: a"),
    ],
)
def test_the_first_cause_that_the_numbers_show(changes: dict[str, Any], line: str) -> None:
    found = cause(replace(FLAT, **changes))
    assert re.search(line, found), found
    assert "\n" not in found


def test_a_refused_candidate_gets_advice_from_its_results_and_tables(project: Project, settings: Settings) -> None:
    ids = ["a", "b"]
    columns = {"id": ids, "sample": [0, 0], "caption": ids, "paraphrase_1": ids, "paraphrase_2": ids}
    PARAPHRASES.write(EXAMPLES, columns | {"similarity_1": [0.98, 0.98], "similarity_2": [0.96, 1.0]})
    write_json(SUMMARY_FILE, SUMMARY | {"accepted": 2000, "rows": 2500})
    project.add("paraclip", 2, 0.38)
    decision = promote(settings)
    assert decision.outcome == "refused"
    assert decision.advice.startswith("the written captions are too similar to the originals (mean cosine 0.98)")
    assert f"Try next: {decision.advice}" in Path("reports/promotion/latest.md").read_text()
    project.add("paraclip", 3, 0.5, recall=0.3)
    assert promote(settings).advice.startswith("forgetting: retrieval/t2i_recall_at_5 fell by 0.1700 more")
    # Missing evidence is not a matter of training.
    write_json(SUMMARY_FILE, SUMMARY | {"passed": False})
    project.add("paraclip", 4, 0.5)
    assert promote(settings).advice == ""
