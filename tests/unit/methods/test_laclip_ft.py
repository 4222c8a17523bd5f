"""LaCLIP-style fine-tuning draws each row's text."""

from __future__ import annotations

import pytest

from components.core.errors import InputError
from components.methods.laclip_ft import METHOD
from tests.unit.methods.examples import losses_of, picking, random_columns, unit


def test_every_text_of_a_row_is_as_likely() -> None:
    hyper = METHOD.settings({"rewrites": ["rewrite", "paraphrase_1", "paraphrase_2"]})
    (drawn,) = METHOD.columns(hyper) - {"image"}
    assert METHOD.draws(hyper) == {
        drawn: {"caption": 0.25, "rewrite": 0.25, "paraphrase_1": 0.25, "paraphrase_2": 0.25}
    }


def test_images_are_contrasted_with_what_was_drawn() -> None:
    columns = random_columns(METHOD.columns(METHOD.settings({})))
    (drawn,) = set(columns) - {"image"}
    image, text = unit(columns["image"]), unit(columns[drawn])
    expected = (picking(image, text) + picking(text, image)) / 2
    assert losses_of({"method": "laclip_ft"}, columns) == pytest.approx({"infonce": expected})


def test_without_rewrites_there_is_nothing_to_draw() -> None:
    with pytest.raises(InputError, match=r"methods\.laclip_ft\.rewrites"):
        METHOD.settings({"rewrites": []})
