"""A table whose judge is not asked for its opinion holds the candidates."""

from __future__ import annotations

import pytest

from components.core.settings import Limits
from components.validation.joining.sql import shown_columns
from components.validation.tables import find_table


@pytest.mark.parametrize(
    ("name", "candidates"), [("negations", "negate_semclip"), ("semclip_paraphrases", "paraphrase_semclip")]
)
def test_the_candidates_take_the_place_of_what_the_judge_says(name: str, candidates: str) -> None:
    judged = find_table(name)
    unjudged = judged.unjudged()
    assert [answer.task for answer in unjudged.answers] == [candidates]
    assert [answer.checks for answer in unjudged.answers] == [answer.checks for answer in judged.answers]
    assert shown_columns(unjudged) == shown_columns(judged), "a verdict column stays, empty"


def test_judges_count_unless_told_otherwise_and_other_tables_have_none() -> None:
    assert Limits().judged
    assert find_table("paraphrases").unjudged() == find_table("paraphrases")
