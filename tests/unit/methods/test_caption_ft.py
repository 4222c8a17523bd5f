"""PC-CLIP's baselines contrast images with one text column."""

from __future__ import annotations

import pytest

from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.methods.caption_ft import METHOD
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit

COLUMNS = random_columns(("image", "caption", "rewrite"))


def test_defaults_are_the_papers() -> None:
    hyper = METHOD.settings({})
    assert (hyper.lr, hyper.batch_size, hyper.epochs, hyper.temperature) == (1e-6, 128, 10, 1.0)
    assert (hyper.schedule, hyper.gamma, hyper.learn_logit_scale) == ("exponential", 0.9, False)


@pytest.mark.parametrize("column", ["caption", "rewrite"])
@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (0.1, 10.0), (None, SCALE)])
def test_it_contrasts_images_with_its_column(column: str, temperature: float | None, scale: float) -> None:
    image, text = unit(COLUMNS["image"]), unit(COLUMNS[column])
    expected = (picking(image, text, scale=scale) + picking(text, image, scale=scale)) / 2
    entry = {"method": "caption_ft", "column": column, "temperature": temperature}
    assert losses_of(entry, COLUMNS) == pytest.approx({"infonce": expected})
    assert METHOD.columns(METHOD.settings({"column": column})) == {"image", column}


def test_both_baselines_can_be_held_to_the_same_rows() -> None:
    assert METHOD.rows(METHOD.settings({})) == frozenset()
    assert METHOD.rows(METHOD.settings({"rows": ["caption", "rewrite"]})) == {"caption", "rewrite"}


@pytest.mark.parametrize("scope", ["blocks", "tower"])
def test_scope(scope: str, tiny_encoder: Encoder) -> None:
    trained = METHOD.freeze(tiny_encoder.model, METHOD.settings({"scope": scope}))
    assert any(name.startswith("transformer.") for name in trained)
    assert ("token_embedding.weight" in trained) == (scope == "tower")


def test_a_logit_scale_that_nothing_uses_cannot_be_learned() -> None:
    with pytest.raises(InputError, match="only with temperature: null"):
        METHOD.settings({"learn_logit_scale": True})
    assert METHOD.settings({"learn_logit_scale": True, "temperature": None}).learn_logit_scale
