"""From each source's published format, and from families of encoders, to a champion and served vectors.

Weights of families are random and small.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image

from components.cli.edited_params import overlaid
from components.core.settings import Settings, load_settings
from components.core.tables.records import PAIRS
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
from tests.support.checkout import first_commit, start_project
from tests.support.coloured_squares import COLOURS, EACH, ENTRY, Shown, shown_squares, write_folder
from tests.support.open_clip_folders import FAMILIES
from tests.support.open_clip_folders import write_folder as write_published
from tests.support.params import every_method
from tests.support.registry_project import lock_results
from tests.support.shard_making import write_tar
from tests.support.typed import cliptune

CHAMPION, RECALL = "text-encoder@champion", "retrieval/t2i_recall_at_5"


def _webdataset(folder: Path, shown: Shown, _encoder: Encoder) -> None:
    pairs = [(name, raw, text) for name, (raw, captions) in shown.items() for text in captions]
    for shard in range(4):
        members = []
        for number, (_, raw, text) in list(enumerate(pairs))[shard::4]:
            members += [(f"{number:09d}.png", raw), (f"{number:09d}.txt", text.encode())]
        write_tar(folder / f"{shard:05d}.tar", members)


def _embeddings(folder: Path, shown: Shown, encoder: Encoder) -> None:
    pairs = [(raw, captions[0]) for raw, captions in shown.values()]
    (folder / "img_emb").mkdir(parents=True)
    (folder / "metadata").mkdir()
    np.save(folder / "img_emb/img_emb_0.npy", encoder.image_features([raw for raw, _ in pairs]).astype(np.float16))
    pq.write_table(pa.table({"caption": [text for _, text in pairs]}), folder / "metadata/metadata_0.parquet")


def _query_log(folder: Path, _shown: Shown, _encoder: Encoder) -> None:
    """Noisy squares; users who search for a colour often click its squares, and by mistake one of another colour."""
    rng = np.random.default_rng(0)
    lines, names = ["query\timage\tclicks"], list(COLOURS)
    folder.mkdir()
    for number in range(EACH * len(names)):
        name = names[number % len(names)]
        pixels = np.clip(np.array(COLOURS[name]) + rng.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines += [f"{name} square\t{number}.png\t{rng.integers(20, 90)}"]
        lines += [f"something {name}\t{number}.png\t"] * 3
        lines += [f"{rng.choice(names)} square\t{number}.png\t0.5"]
    (folder / "queries.tsv").write_text("\n".join(lines) + "\n")


WRITERS = {
    "folder": lambda folder, shown, _encoder: write_folder(folder, shown),
    "webdataset": _webdataset,
    "embeddings": _embeddings,
    "query_log": _query_log,
}


def _written(raw: dict[str, Any]) -> Settings:
    """The project's settings, of which no model writes paraphrases."""
    raw["train"] = {"checkpoint_dir": "state/train", "validation_images": 0}
    raw["evaluate"] |= {"benchmarks": ["retrieval"]}
    raw["promote"] |= {"metric": RECALL, "require_valid_tables": [], "require_benchmarks": ["retrieval"]}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    return load_settings()


@pytest.mark.parametrize("source", WRITERS)
def test_a_source_becomes_a_champion(
    source: str, tmp_path: Path, track_in: Callable[[Path], None], tiny_encoder: Encoder
) -> None:
    track_in(tmp_path)
    start_project(tmp_path)
    WRITERS[source](tmp_path / "shop", shown_squares(), tiny_encoder)
    assert f"source '{source}'" in cliptune("init", "shop")
    raw: dict[str, Any] = yaml.safe_load(overlaid("shop"))
    settings = _written(raw | {"methods": {"captions": ENTRY}, "compare_encoders": ["base", "captions"]})
    prepare.run(settings)
    pairs, is_log = PAIRS.read(Path("data/pairs/train.parquet")).to_pandas(), source == "query_log"
    if is_log:
        assert set(pairs.loc[pairs["caption"].str.startswith("something"), "weight"]) == {3.0}
    else:
        assert pairs["image"].isna().sum() == settings.prepare.counts.train
    tiny_encoder.save(Path("models/base"))
    _check_the_way_to_a_champion(settings, 0.2 if is_log else 0)


def _check_the_way_to_a_champion(settings: Settings, least_gain: float = 0) -> None:
    """From prepared pairs and a base."""
    embed(settings)
    train(settings, "captions")
    before, after = (evaluate(settings, name).metrics[RECALL].value for name in ("base", "captions"))
    assert after > before + least_gain
    lock_results()
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("captions", "promoted"), decision.rules
    assert find_encoder(CHAMPION).sha256 == decision.encoder_sha256


QUERIES = ["red square", "Something BLUE, number 12", "a green_square", "yellow " * 90, "café 犬"]


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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_champion_serves_its_vectors(family: str, tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    torch.manual_seed(0)
    track_in(tmp_path)
    first_commit(tmp_path)
    write_published(tmp_path / "published", json.dumps(FAMILIES[family]))
    write_pictures(tmp_path / "squares")
    raw: dict[str, Any] = every_method()
    raw["dataset"]["name"] = "squares"
    raw["prepare"] = {"source": "folder", "folder": "squares", "counts": {"train": 160, "val": 40, "test": 40}}
    raw["base"] = {"source": "open_clip", "model": "local-dir:published"}
    raw |= {"methods": {"captions": ENTRY | {"epochs": 4}}, "mixes": {}, "compare_encoders": ["base", "captions"]}
    raw["study"] = {}
    raw["evaluate"]["bootstrap"] = 50
    raw["promote"] |= {"guards": {}}
    settings = _written(raw)
    base(settings)
    prepare.run(settings)
    _check_the_way_to_a_champion(settings)
    sidecar = Encoder.load(Path("models/captions")).sidecar
    assert sidecar.image_tower_sha256 == Encoder.load(Path("models/base")).sidecar.image_tower_sha256
    cliptune("index", "build", "index", "--from", "squares", "--encoder", CHAMPION)
    cliptune("export", "--encoder", CHAMPION, "--format", "open_clip", "--output", "exported")
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
