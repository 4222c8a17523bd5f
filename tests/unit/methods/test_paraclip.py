"""ParaCLIP's terms are the pairs of table 2."""

from __future__ import annotations

import pytest

from components.methods.paraclip import METHOD
from tests.unit.methods.examples import losses_of, picking, random_columns, unit

COLUMNS = random_columns(("image", "caption", "paraphrase_1", "paraphrase_2"))


def test_defaults_are_the_papers() -> None:
    hyper = METHOD.settings({})
    assert (hyper.lr, hyper.batch_size, hyper.epochs, hyper.weight_decay) == (5e-7, 3072, 1, 0.001)
    assert METHOD.columns(hyper) == frozenset(COLUMNS)


@pytest.mark.parametrize(
    ("term", "one", "other"),
    [
        ("l1", "image", "caption"),
        ("l1_prime", "image", "paraphrase_1"),
        ("l1_second", "image", "paraphrase_2"),
        ("l2", "caption", "paraphrase_1"),
        ("l3", "paraphrase_1", "paraphrase_2"),
    ],
)
def test_each_term_contrasts_its_columns(term: str, one: str, other: str) -> None:
    left, right = unit(COLUMNS[one]), unit(COLUMNS[other])
    expected = (picking(left, right) + picking(right, left)) / 2
    assert losses_of({"method": "paraclip", "terms": [term]}, COLUMNS) == pytest.approx({term: expected})
    assert METHOD.columns(METHOD.settings({"terms": [term]})) == {one, other}


def test_the_default_is_the_sum_of_three_terms() -> None:
    assert list(losses_of({"method": "paraclip"}, COLUMNS)) == ["l1_second", "l2", "l3"]


def test_every_row_of_table_2_trains_on_the_same_rows() -> None:
    for terms in (["l1"], ["l2", "l3"]):
        assert METHOD.rows(METHOD.settings({"terms": terms})) == {"caption", "paraphrase_1", "paraphrase_2"}
