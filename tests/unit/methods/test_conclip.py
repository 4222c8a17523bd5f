"""CoN-CLIP's three cross-entropies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import InputError
from components.methods.conclip import METHOD
from components.methods.contract.method import Neighbours
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit

COLUMNS = random_columns(("image", "caption", "negated_term", "neighbour.image"))
IMAGE, CAPTION, NEGATED, DISTRACTOR = (unit(rows) for rows in COLUMNS.values())


def test_defaults_are_the_published_run() -> None:
    hyper = METHOD.settings({})
    assert (hyper.lr, hyper.batch_size, hyper.epochs, hyper.warmup_steps, hyper.weight_decay) == (1e-6, 200, 5, 50, 0.2)
    assert hyper.decay_all
    assert hyper.image_tower == "frozen"
    assert METHOD.columns(hyper) == frozenset(COLUMNS)


def test_the_mean_of_three_terms() -> None:
    assert losses_of({"method": "conclip"}, COLUMNS) == pytest.approx(
        {
            "image_to_text": picking(IMAGE, CAPTION, NEGATED) / 3,
            "text_to_image": picking(CAPTION, IMAGE, DISTRACTOR) / 3,
            "distractor_to_text": picking(DISTRACTOR, NEGATED, CAPTION) / 3,
        }
    )


def test_the_mean_of_two_terms_without_distractors() -> None:
    assert losses_of({"method": "conclip", "distractors": False}, COLUMNS) == pytest.approx(
        {"image_to_text": picking(IMAGE, CAPTION, NEGATED) / 2, "text_to_image": picking(CAPTION, IMAGE) / 2}
    )
    assert METHOD.columns(METHOD.settings({"distractors": False})) == {"image", "caption", "negated_term"}


def test_a_single_row_by_hand() -> None:
    # The distractor is orthogonal to image and caption, and its text, the negation, lies with it.
    row = {"image": [[1, 0]], "caption": [[1, 0]], "negated_term": [[0, 1]], "neighbour.image": [[0, 1]]}
    each = math.log(1 + math.exp(-SCALE)) / 3
    assert losses_of({"method": "conclip"}, row) == pytest.approx(
        {"image_to_text": each, "text_to_image": each, "distractor_to_text": each}
    )


@pytest.mark.parametrize(
    ("given", "looked_for"),
    [
        ({}, Neighbours(3, None)),
        ({"protocol": "released"}, Neighbours(1, None)),
        ({"protocol": "released", "distractor_data": "coco/data"}, Neighbours(1, Path("coco/data"))),
        ({"distractor_data": "coco/data"}, Neighbours(3, Path("coco/data"))),
    ],
)
def test_which_images_distract(given: dict[str, Any], looked_for: Neighbours) -> None:
    hyper = METHOD.settings(given)
    assert METHOD.neighbours(hyper) == looked_for
    read = {"distractors": Path("coco/data/embeddings")} if looked_for.data else {}
    assert METHOD.files(hyper) == read


@pytest.mark.parametrize("given", [{"protocol": "released"}, {"distractor_data": "coco/data"}])
def test_without_distractors_none_are_looked_for(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="conclip has distractors: false: drop protocol and distractor_data"):
        METHOD.settings({"distractors": False, **given})
