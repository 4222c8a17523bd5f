"""Methods with hard negatives: NegCLIP, CS-CLIP and CoN-CLIP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.system.errors import InputError
from components.methods.conclip import METHOD as CONCLIP
from components.methods.contract.method import Neighbours
from components.methods.negclip import METHOD as NEGCLIP
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit

NEGCLIP_COLUMNS = random_columns(NEGCLIP.columns(NEGCLIP.settings({})))


def test_negclip_is_one_cross_entropy_over_doubled_images_and_quadrupled_texts() -> None:
    own, near = (
        [unit(NEGCLIP_COLUMNS[f"{prefix}{column}"]) for column in ("image", "caption", "hard_negative")]
        for prefix in ("", "neighbour.")
    )
    images = np.concatenate([own[0], near[0]])
    captions = np.concatenate([own[1], near[1]])
    negatives = np.concatenate([own[2], near[2]])
    assert losses_of({"method": "negclip"}, NEGCLIP_COLUMNS) == pytest.approx(
        {"image_to_text": picking(images, captions, negatives) / 2, "text_to_image": picking(captions, images) / 2}
    )


def test_negclip_without_hard_images() -> None:
    image, caption, negative = (unit(NEGCLIP_COLUMNS[column]) for column in ("image", "caption", "hard_negative"))
    assert losses_of({"method": "negclip", "hard_images": False}, NEGCLIP_COLUMNS) == pytest.approx(
        {"image_to_text": picking(image, caption, negative) / 2, "text_to_image": picking(caption, image) / 2}
    )
    assert NEGCLIP.columns(NEGCLIP.settings({"hard_images": False})) == {"image", "caption", "hard_negative"}


CS_CLIP_COLUMNS = random_columns(("image", "caption", "hard_negative", "unit", "unit_foil"))
CS_CLIP_IMAGE, CS_CLIP_CAPTION, CS_CLIP_NEGATIVE, CS_CLIP_UNIT, CS_CLIP_FOIL = (
    unit(rows) for rows in CS_CLIP_COLUMNS.values()
)


def test_cs_clips_captions_see_all_negatives_and_a_unit_its_own_foil() -> None:
    logits = SCALE * np.concatenate(
        [CS_CLIP_IMAGE @ CS_CLIP_UNIT.T, (CS_CLIP_IMAGE * CS_CLIP_FOIL).sum(axis=1, keepdims=True)], axis=1
    )
    own = float(np.mean(np.log(np.exp(logits).sum(axis=1)) - np.diagonal(logits)))
    assert losses_of({"method": "cs_clip"}, CS_CLIP_COLUMNS) == pytest.approx(
        {
            "image_to_text": picking(CS_CLIP_IMAGE, CS_CLIP_CAPTION, CS_CLIP_NEGATIVE) / 2,
            "text_to_image": picking(CS_CLIP_CAPTION, CS_CLIP_IMAGE) / 2,
            "image_to_unit": own / 4,
            "unit_to_image": picking(CS_CLIP_UNIT, CS_CLIP_IMAGE) / 4,
        }
    )


CONCLIP_COLUMNS = random_columns(("image", "caption", "negated_term", "neighbour.image"))
CONCLIP_IMAGE, CONCLIP_CAPTION, CONCLIP_NEGATED, CONCLIP_DISTRACTOR = (unit(rows) for rows in CONCLIP_COLUMNS.values())


def test_conclip_is_the_mean_of_three_terms() -> None:
    assert losses_of({"method": "conclip"}, CONCLIP_COLUMNS) == pytest.approx(
        {
            "image_to_text": picking(CONCLIP_IMAGE, CONCLIP_CAPTION, CONCLIP_NEGATED) / 3,
            "text_to_image": picking(CONCLIP_CAPTION, CONCLIP_IMAGE, CONCLIP_DISTRACTOR) / 3,
            "distractor_to_text": picking(CONCLIP_DISTRACTOR, CONCLIP_NEGATED, CONCLIP_CAPTION) / 3,
        }
    )


def test_conclip_without_distractors_is_the_mean_of_two_terms() -> None:
    assert losses_of({"method": "conclip", "distractors": False}, CONCLIP_COLUMNS) == pytest.approx(
        {
            "image_to_text": picking(CONCLIP_IMAGE, CONCLIP_CAPTION, CONCLIP_NEGATED) / 2,
            "text_to_image": picking(CONCLIP_CAPTION, CONCLIP_IMAGE) / 2,
        }
    )
    assert CONCLIP.columns(CONCLIP.settings({"distractors": False})) == {"image", "caption", "negated_term"}


@pytest.mark.parametrize(
    ("given", "neighbours"),
    [
        ({}, Neighbours(3, None)),
        ({"protocol": "released"}, Neighbours(1, None)),
        ({"protocol": "released", "distractor_data": "coco/data"}, Neighbours(1, Path("coco/data"))),
        ({"distractor_data": "coco/data"}, Neighbours(3, Path("coco/data"))),
    ],
)
def test_distractors_are_the_nearest_images_of_this_or_another_table(
    given: dict[str, Any], neighbours: Neighbours
) -> None:
    hyper = CONCLIP.settings(given)
    assert CONCLIP.neighbours(hyper) == neighbours
    assert CONCLIP.files(hyper) == ({"distractors": Path("coco/data/embeddings")} if neighbours.data else {})


@pytest.mark.parametrize("given", [{"protocol": "released"}, {"distractor_data": "coco/data"}])
def test_settings_of_distractors_without_distractors_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="conclip has distractors: false: drop protocol and distractor_data"):
        CONCLIP.settings({"distractors": False, **given})
