"""ParaCLIP's terms are the pairs of table 2."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from components.methods.paraclip import METHOD, Hyper
from components.training.losses import info_nce

SCALE = torch.tensor(10.0)
COLUMNS = ("image", "caption", "paraphrase_1", "paraphrase_2")
FEATURES = {
    column: F.normalize(torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)), dim=-1)
    for seed, column in enumerate(COLUMNS)
}


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
    hyper = METHOD.settings({"terms": [term]})
    losses = METHOD.losses(FEATURES, SCALE, hyper)
    assert set(losses) == {term}
    assert losses[term] == info_nce(FEATURES[one], FEATURES[other], SCALE)
    assert METHOD.columns(hyper) == {one, other}


def test_the_default_is_the_sum_of_three_terms() -> None:
    losses = METHOD.losses(FEATURES, SCALE, Hyper())
    assert list(losses) == ["l1_second", "l2", "l3"]
