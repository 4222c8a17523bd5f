"""Encoders of SigLIP 2's, CoCa's and MobileCLIP 2's kind go from a published folder to a champion and served vectors.

Weights are random and small. About 30 seconds on an idle machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
import yaml
from PIL import Image
from typer.testing import CliRunner

from components.cli import app
from components.core.settings import Settings, load_settings
from components.data import prepare
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.embed import run as embed
from components.evaluation.scoring.evaluate import run as evaluate
from components.registry.encoder_lookup import find_encoder
from components.registry.promotion import promote
from components.serving.index.image_index import ImageIndex
from components.serving.server.messages import EmbeddingRequest
from components.serving.server.served import Loading
from components.training.base.base import run as base
from components.training.train import run as train
from tests.support.checkout import first_commit
from tests.support.coloured_squares import COLOURS, EACH, ENTRY
from tests.support.open_clip_folders import FAMILIES, write_folder
from tests.support.params import every_method
from tests.support.registry_project import lock_results

CHAMPION, RECALL = "text-encoder@champion", "retrieval/t2i_recall_at_5"
QUERIES = ["red square", "Something BLUE, number 12", "a green_square", "yellow " * 90, "café 犬"]


@pytest.fixture(params=FAMILIES)
def settings(request: pytest.FixtureRequest, tmp_path: Path, track_in: Callable[[Path], None]) -> Settings:
    """A new project, the current folder, whose base is a folder of the family and whose pictures have colours."""
    torch.manual_seed(0)
    track_in(tmp_path)
    first_commit(tmp_path)
    write_folder(tmp_path / "published", json.dumps(FAMILIES[request.param]))
    write_pictures(tmp_path / "squares")
    raw: dict[str, Any] = every_method()
    raw["dataset"]["name"] = "squares"
    raw["prepare"] = {"source": "folder", "folder": "squares", "counts": {"train": 160, "val": 40, "test": 40}}
    raw["base"] = {"source": "open_clip", "model": "local-dir:published"}
    raw |= {"methods": {"captions": ENTRY | {"epochs": 4}}, "mixes": {}, "compare_encoders": ["base", "captions"]}
    raw["study"] = {}
    raw["train"] = {"checkpoint_dir": "state/train", "validation_images": 0}
    raw["evaluate"] |= {"benchmarks": ["retrieval"], "bootstrap": 50}
    raw["promote"] |= {"metric": RECALL, "margin": {"rule": "min_gain"}, "guards": {}}
    raw["promote"] |= {"require_valid_tables": [], "require_benchmarks": ["retrieval"]}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    return load_settings()


def write_pictures(folder: Path) -> None:
    """Wide noisy pictures of a colour with a dark left side, which a crop cuts off and a squash keeps."""
    rng, names, lines = np.random.default_rng(0), list(COLOURS), ["image,caption"]
    folder.mkdir()
    for number in range(EACH * len(names)):
        name = names[number % len(names)]
        pixels = np.array(COLOURS[name]) + rng.normal(0, 20, (16, 24, 3))
        pixels[:, :4] /= 4
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{number:03d}.png")
        lines += [
            f'{number:03d}.png,"{caption}"' for caption in (f"{name} square", f"something {name} number {number}")
        ]
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")


def _run(*command: str) -> str:
    done = CliRunner().invoke(app, list(command))
    assert done.exit_code == 0, done.output
    return done.output


@torch.inference_mode()
def _by_open_clip(folder: str, texts: list[str], files: list[Path]) -> tuple[Vectors, Vectors]:
    """Unit vectors of texts and pictures by open_clip itself, with its tokenizer and its preparation."""
    model, _, prepared = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    model.eval()
    pixels = torch.stack([prepared(Image.open(file)) for file in files])
    return (
        model.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(texts), normalize=True).numpy(),
        model.encode_image(pixels, normalize=True).numpy(),
    )


def test_a_family_becomes_a_champion_whose_served_vectors_are_open_clips(settings: Settings) -> None:
    base(settings)
    prepare.run(settings)
    embed(settings)
    train(settings, "captions")
    sidecar = Encoder.load(Path("models/captions")).sidecar
    assert sidecar.image_tower_sha256 == Encoder.load(Path("models/base")).sidecar.image_tower_sha256
    before, after = (evaluate(settings, name).metrics[RECALL].value for name in ("base", "captions"))
    assert after > before
    lock_results()
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("captions", "promoted"), decision.rules

    _run("index", "build", "index", "--from", "squares", "--encoder", CHAMPION)
    _run("export", "--encoder", CHAMPION, "--format", "open_clip", "--output", "exported")
    index, champion = ImageIndex.open(Path("index")), find_encoder(CHAMPION)
    index.accept(champion)
    files = sorted(Path("squares").glob("*.png"))
    texts, pictures = _by_open_clip("exported", QUERIES, files)
    served = np.stack(Loading().first(CHAMPION).embed([EmbeddingRequest(input=QUERIES)], {})[0].vectors)
    np.testing.assert_allclose(served, texts, atol=1e-5)
    np.testing.assert_array_equal(served, champion.encoder.embed_texts(QUERIES))
    places = {name: row for row, name in enumerate(index.column("name").to_pylist())}
    rows = [places[str(file.name)] for file in files]
    np.testing.assert_allclose(index.vector(rows), pictures, atol=1e-5)
    found = index.search(served, 5)
    np.testing.assert_allclose(found.scores, np.sort(texts @ pictures.T)[:, ::-1][:, :5], atol=1e-5)
    assert unit_rows(served)[1] == pytest.approx(1)
