"""Every entry point that embeds or searches computes on the GPU that it was given.

Tensors are fake: an array that is not moved meets one on the GPU and raises, and a result that was computed on the CPU
is refused. What torch.cuda itself does is not tested here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.base.fitted import trunk_features
from components.benchmarks.scoring.benchmark import Benchmark, Metric, Scores
from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.published_context import ImageFeatures, PublishedContext
from components.benchmarks.scoring.protocols import geometry, retrieval, zero_shot
from components.core.compute.metrics import rank_correlation
from components.core.settings import Settings
from components.core.tables.files import image_id
from components.core.tables.records import PAIRS
from components.encoders import embed, parity
from components.encoders.adapter.encoder import Encoder
from components.evaluation import evaluate
from components.evaluation.published import Plan, run_one
from components.evaluation.results import Folders
from components.explorer.comparing import Explorer
from components.index.building import build
from components.index.image_index import ImageIndex
from components.index.sources import find_source
from components.registry.encoder_lookup import find_encoder
from components.registry.export import write_checked
from components.registry.formats.format import ExportedVectors, Format
from components.serving import served
from tests.support.evaluation_fixtures import folders, make_settings, vectors  # noqa: F401
from tests.support.fake_gpu import GPU, fake_gpus
from tests.support.index_making import drawn, write_vectors
from tests.support.toy_context import colour_image


@dataclass
class Place:
    """A folder with pictures, pairs of them and the encoder `base`, all written before tensors are fake."""

    folder: Path
    settings: Settings
    evaluated: Folders

    @property
    def base(self) -> Path:
        return self.folder / "models" / "base"

    def encoder(self) -> EncoderUnderTest:
        return find_encoder(str(self.base), device=GPU)


@pytest.fixture
def place(
    tmp_path: Path,
    tiny_encoder: Encoder,
    folders: Folders,  # noqa: F811
    make_settings: Callable[..., Settings],  # noqa: F811
) -> Place:
    folder = tmp_path / "place"
    tiny_encoder.save(folders.models / "base")
    tiny_encoder.save(folder / "models" / "base")
    for number in range(4):
        colour_image(folder / "pictures" / f"{number}.png", (60 * number, 10, 10), (16, 16))
    images = [path.read_bytes() for path in sorted((folder / "pictures").iterdir())]
    ids = [image_id(image) for image in images]
    for split in ("train", "val", "test"):
        PAIRS.write(
            folder / "pairs" / f"{split}.parquet", {"id": ids, "image_id": ids, "image": images, "caption": ids}
        )
    settings = make_settings()
    changed = settings.embed.model_copy(update={"state": folder / "state"})
    return Place(folder, settings.model_copy(update={"device": GPU, "embed": changed}), folders)


def _evaluate(place: Place) -> None:
    evaluate.run(place.settings, "base", place.evaluated)


def _scored(context: PublishedContext) -> Scores:
    """A benchmark that uses every search and statistic of the protocols."""
    texts, images = context.texts(["one", "two", "three", "four"]), context.image_files("pictures", PICTURES)
    gold = np.arange(4)
    retrieval.caption_recalls(images, texts, gold, (1, 2))
    retrieval.paraphrase_agreement(texts, texts, images, gold, (1, 2))
    rank_correlation(texts, texts, images)
    zero_shot.confidence_margins(images, texts)
    zero_shot.predicted(images, texts)
    geometry.analogy_ranks(texts, gold[None])
    geometry.uniformity(images)
    return Scores({"all/raw": context.raw_texts(["one"])[0].astype(np.float64)})


PICTURES = [f"{number}.png" for number in range(4)]
ALL = Benchmark(
    name="all", version=1, protocol="made up", citation="nobody", folder=".", needs=(),
    metrics=(Metric("raw", higher_is_better=True, ties="none"),), score=_scored,
)  # fmt: skip


def _published(place: Place) -> None:
    plan = Plan(place.folder, place.folder / "results", 20, image_features=ImageFeatures(place.folder / "cache"))
    run_one(place.encoder(), ALL, plan)


def _serve(place: Place) -> None:
    served.load(str(place.base), device=GPU).embed_new(["a dog", "two cats on a long sofa"])


def _index(place: Place) -> ImageIndex:
    encoder = place.encoder()
    source = find_source("folder").open(str(place.folder / "pictures"), encoder)
    build(place.folder / "index", source, "exact", encoder)
    return ImageIndex.open(place.folder / "index")


def _tuned_index(place: Place) -> None:
    encoder = place.encoder()
    write_vectors(place.folder / "vectors", 0, drawn(1_200, dim=16))
    source = find_source("embeddings").open(str(place.folder / "vectors"), encoder)
    build(place.folder / "approximate", source, "ivf_pq", encoder, ["a dog"])


def _explore(place: Place) -> None:
    index, encoder = _index(place), place.encoder()
    explorer = Explorer(index.to(encoder.device), [encoder])
    explorer.compare("a dog", "a puppy", 2, np.array([True, False, True, True]))
    explorer.wordings(["a dog", "a puppy"], 2)
    explorer.similar(0, 2)


def _export(place: Place) -> None:
    def read(_folder: Path, texts: Any, images: Any) -> ExportedVectors:
        return ExportedVectors(*(np.full((len(rows), 16), 0.25, np.float32) for rows in (texts, images)))

    form = Format("made_up", lambda _: None, lambda *_: None, read, "")
    write_checked(Encoder.load(place.base), form, place.folder / "exported", GPU)


def _base(place: Place) -> None:
    encoder, other = Encoder.load(place.base), Encoder.load(place.base)
    parity.measured_parity(encoder, parity.Reference.of(other, "tiny"), GPU)


def _trunk(place: Place) -> None:
    trunk_features(
        Encoder.load(place.base).to(GPU), 16, place.folder / "pairs" / "train.parquet", place.folder / "kept"
    )


def _embed(place: Place) -> None:
    embed.run(place.settings, place.folder / "embeddings", place.folder / "pairs", place.base)


ENTRIES = (_evaluate, _published, _serve, _index, _tuned_index, _explore, _export, _base, _trunk, _embed)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__.strip("_"))
def test_it_computes_on_the_gpu_that_was_chosen(
    entry: Callable[[Place], Any], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_gpus(monkeypatch) as fetched_from:
        entry(place)
    assert set(fetched_from) == {torch.device(GPU)}
