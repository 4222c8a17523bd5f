"""`import cliptune`: the examples of its docstrings, in a project of drawn scenes, and a quick start."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import cliptune
from components.core.settings import load_settings
from components.core.system.errors import InputError
from components.core.tables.folders import PAIRS as PAIRS_FOLDER
from components.core.tables.records import PAIRS
from components.data.sources import find_source
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.results import DEFAULT
from components.training import fine_tuning
from tests.conftest import REPO, TINY
from tests.support.registry_project import make_project

SCENES = 24
ROWS = {"caption": ["a dog", "two cats", "a boat", "a tree"] * 4, "paraphrase_1": ["dog", "cats", "boat", "tree"] * 4}
ROWS["paraphrase_2"] = ["an animal", "two animals", "a vessel", "a plant"] * 4
SMALL = {"lr": 0.001, "batch_size": 4, "epochs": 2}


@pytest.fixture
def images(tmp_path: Path, track_in: Callable[[Path], None], raw_params: dict[str, Any]) -> list[bytes]:
    """The pictures of a project of drawn scenes, the current folder, with a base and a candidate that is worse."""
    track_in(tmp_path)
    raw_params["prepare"] |= {"source": "synthetic", "counts": {"train": 1, "val": 1, "test": SCENES}}
    raw_params["compare_encoders"] = ["base", "paraclip"]
    Path("params.yaml").write_text(yaml.safe_dump(raw_params))
    settings = load_settings()
    make_project(settings, TINY).add("paraclip", 2, 0.3)
    source = find_source("synthetic")
    scenes = [pair for pair in source.pairs(settings) if pair.split == "test"]
    for name, (table, rows) in source.evaluation(settings, scenes).items():
        table.write(DEFAULT.evaluation / f"{name}.parquet", rows)
    given = {"id": [one.id for one in scenes], "image_id": [one.image.image_id for one in scenes]}
    given |= {"caption": [one.caption for one in scenes], "image": [one.image.raw for one in scenes]}
    PAIRS.write(PAIRS_FOLDER / "test.parquet", given | {"facts": [None] * SCENES})
    return given["image"]


def test_the_examples_are_true(images: list[bytes]) -> None:
    for module, examples in ((cliptune, 5), (fine_tuning, 4)):
        globs = {"pictures": images[:4], "Path": Path}
        found = doctest.testmod(module, extraglobs=globs, optionflags=doctest.ELLIPSIS)
        assert (found.attempted, found.failed) == (examples, 0)


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "open_clip", "mlflow", "numpy", "pandas", "pydantic", "components"}
    code = f"import sys, cliptune; cliptune.rank; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert all(hasattr(cliptune, name) for name in cliptune.__all__)


def test_pictures_and_their_features_train_alike_and_the_base_stays(tiny_encoder: Encoder, png: Any) -> None:
    pictures = [png(colour) for colour in ("red", "green", "blue", "white")] * 4
    before = {name: weights.clone() for name, weights in tiny_encoder.model.state_dict().items()}
    tuned = cliptune.tune(tiny_encoder, ROWS | {"image": pictures}, **SMALL)
    features = np.array(tiny_encoder.image_features(pictures))
    again = cliptune.tune(tiny_encoder, ROWS | {"image": features}, **SMALL)
    torch.testing.assert_close(again.model.state_dict(), tuned.model.state_dict(), rtol=0, atol=1e-5)
    assert (tuned.model.text_projection - before["text_projection"]).abs().max() > 1e-4
    assert torch.equal(tiny_encoder.model.text_projection, before["text_projection"])
    assert tuned.sidecar.settings["lr"] == 0.001
    assert cliptune.embed_texts(tuned, ["a dog"]).shape == (1, 16)


def test_a_trained_image_tower_reads_pixels(tiny_encoder: Encoder, png: Any) -> None:
    pictures = [png(colour) for colour in ("red", "green", "blue", "white")] * 4
    tuned = cliptune.tune(tiny_encoder, ROWS | {"image": pictures}, image_tower="trained", **SMALL)
    assert tuned.image_tower_hash() != tiny_encoder.image_tower_hash()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"caption": None}, "method 'paraclip' needs the column 'caption' of pairs: add it"),
        ({"caption": ["a"]}, "columns of pairs have 1 and 16 rows: give each the same number"),
    ],
)
def test_columns_that_do_not_fit_are_named(tiny_encoder: Encoder, change: dict[str, Any], error: str) -> None:
    pairs = ROWS | {"image": np.eye(16, dtype=np.float32)} | change
    with pytest.raises(InputError, match=error):
        cliptune.tune(tiny_encoder, {name: column for name, column in pairs.items() if column is not None}, **SMALL)
