"""Every entry point that embeds or searches computes on the GPU that it was given.

Without a GPU, tensors are fake: an array that is not moved meets one on the GPU and raises, and a result that was
computed on the CPU is refused. What torch.cuda itself does is tested only on a machine with a GPU.

Fake tensors have a device and no numbers. Weights are read and written outside: only the passes, searches and
statistics in between are fake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from typer.testing import CliRunner

from components.cli import app
from components.cli.commands.explore import _explored
from components.core.compute import devices
from components.core.compute.metrics import rank_correlation
from components.core.settings import Fit, Settings
from components.core.tables.files import image_id
from components.core.tables.records import PAIRS
from components.encoders import embed, parity
from components.encoders.adapter import tokens
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.benchmark import Benchmark, Metric, Scores
from components.evaluation.scoring.protocols import retrieval
from components.evaluation.scoring.published import Plan, run_one
from components.evaluation.scoring.published_context import ImageFeatures, PublishedContext
from components.evaluation.scoring.results import Folders
from components.registry.encoder_lookup import find_encoder
from components.registry.export import write_checked
from components.registry.formats import ExportedVectors, Format
from components.serving.index.building import build
from components.serving.index.sources import find_source, reading
from components.serving.server import served
from components.serving.server.messages import EmbeddingRequest
from components.training.base import base, fitted, published
from components.training.base.fitted import trunk_features
from research.experiments import embedding_geometry
from research.experiments.parts import classes
from tests.support.index_making import make_index
from tests.support.toy_context import colour_image

GPU = "cuda:0"


@contextmanager
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.device]]:
    """Yields the devices that results were fetched from; without a GPU, every tensor in the block is fake."""
    fetched_from: list[torch.device] = []
    real, original = torch.cuda.is_available(), devices.fetched

    def fetched(tensor: Tensor) -> Any:
        fetched_from.append(torch.device(tensor.device))
        assert fetched_from[-1] == torch.device(GPU), f"computed on {tensor.device}"
        if real:
            return original(tensor)
        if not tensor.is_floating_point():
            # Numbers of columns, such as a search returns; nothing is damaged.
            return np.zeros(tensor.shape, np.bool_) if tensor.dtype == torch.bool else np.indices(tensor.shape)[-1]
        return np.full(tensor.shape, tensor.shape[-1] ** -0.5 if tensor.ndim else 0, np.float32)

    for module in [*sys.modules.values()]:
        if getattr(module, "fetched", None) is original and module is not devices:
            monkeypatch.setattr(module, "fetched", fetched)
    if real:
        yield fetched_from
        return
    for name, value in (("is_available", True), ("device_count", 2), ("mem_get_info", (1 << 33, 1 << 34))):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for name in ("memory_reserved", "memory_allocated", "max_memory_allocated", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: 0)
    # Otherwise fake tensors start CUDA as soon as torch reports a GPU.
    monkeypatch.setattr(FakeTensorMode, "avoid_device_init", property(lambda _: True))
    monkeypatch.setattr(nn.Module, "to", _moved)
    monkeypatch.setattr(Encoder, "image_tower_hash", lambda _: "tower")
    for owner, name in ((Encoder, "load"), (tokens, "in_blocks"), (parity, "_prepared")):
        monkeypatch.setattr(owner, name, staticmethod(_really(getattr(owner, name))))
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield fetched_from


def _really(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with real tensors: files, tokenizers and transforms of pictures do not use the GPU."""

    def call(*arguments: Any) -> Any:
        with unset_fake_temporarily():
            return function(*arguments)

    return call


def _moved(module: nn.Module, device: str) -> nn.Module:
    """As `Module.to`, which cannot exchange a real parameter for a fake one."""
    for part in module.modules():
        for name, weights in list(part.named_parameters(recurse=False)):
            part._parameters[name] = nn.Parameter(weights.detach().to(device), requires_grad=False)
        for name, values in list(part.named_buffers(recurse=False)):
            part._buffers[name] = values.to(device)
    return module


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
def place(tmp_path: Path, tiny_encoder: Encoder, folders: Folders, make_settings: Callable[..., Settings]) -> Place:
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
    classes.confidence_margins(images, texts)
    classes.predicted(images, texts)
    embedding_geometry.uniformity(images)
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
    request = EmbeddingRequest(input=["a dog", "two cats on a long sofa"])
    served.Loading(device=GPU).load(str(place.base)).embed([request], {})


def _index(place: Place) -> None:
    encoder = place.encoder()
    source = find_source("folder").open(str(place.folder / "pictures"), encoder, reading({}))
    build(place.folder / "index", source, "exact")


def _explore(place: Place) -> None:
    _index(place)
    explorer = _explored([str(place.base)], str(place.folder / "index"), GPU).explorer
    explorer.compare("a dog", "a puppy", 2, "name NOT LIKE '%1.png'")
    explorer.similar(0, 2)


def _export(place: Place) -> None:
    loaded = Encoder.load(place.base).to(GPU)

    def read(_folder: Path, texts: Any, images: Any) -> ExportedVectors:
        pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
        return ExportedVectors(loaded.embed_texts(texts), loaded.embed_pixels(pixels.permute(0, 3, 1, 2)))

    form = Format("made_up", lambda _: None, lambda *_: None, read, "")
    write_checked(Encoder.load(place.base), form, place.folder / "exported", GPU)


def _base(place: Place) -> None:
    encoder, other = Encoder.load(place.base), Encoder.load(place.base)
    transform = image_transform_v2(PreprocessCfg(**other.sidecar.preparation.model_dump()), is_train=False)
    parity.measured_parity(encoder, parity.Reference(other.model, transform, "tiny"), GPU)


def _trunk(place: Place) -> None:
    trunk_features(
        Encoder.load(place.base).to(GPU), 16, place.folder / "pairs" / "train.parquet", place.folder / "kept"
    )


def _embed(place: Place) -> None:
    embed.run(place.settings, place.folder / "embeddings", place.folder / "pairs", place.base)


ENTRIES = (_evaluate, _published, _serve, _index, _explore, _export, _base, _trunk, _embed)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__.strip("_"))
def test_the_chosen_gpu_computes(entry: Callable[[Place], Any], place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpus(monkeypatch) as fetched_from:
        entry(place)
    assert set(fetched_from) == {torch.device(GPU)}


def test_base_computes_on_its_device(place: Place, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its towers are built and fitted, so they cannot be fake."""
    devices = list[str]()
    visual = nn.Module()
    visual.head, visual.trunk = nn.Linear(2, 2), SimpleNamespace(num_features=2)  # type: ignore[assignment]
    tiny_encoder.model.visual = visual
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(Encoder, "to", lambda _, device: devices.append(device))
    for name in ("timm_encoder", "with_language_tower"):
        monkeypatch.setattr(fitted, name, lambda *_: tiny_encoder)

    def stop(*_: Any) -> Any:
        raise InterruptedError

    monkeypatch.setattr(fitted, "trunk_features", stop)
    fit = Fit(epochs=1, batch_size=1, lr=1, projection_lr=1, warmup_steps=0, weight_decay=0)
    chosen = place.settings.base.model_copy(update={"source": "timm", "fit": fit})
    with pytest.raises(InterruptedError):
        fitted.fit_towers(place.settings.model_copy(update={"base": chosen}), place.folder, Any)  # type: ignore[arg-type]
    assert devices == [GPU]

    def compared(*given: Any) -> Any:
        devices.append(given[2])
        raise InterruptedError

    monkeypatch.setattr(published, "measured_parity", compared)
    monkeypatch.setattr(published.Reference, "of", lambda *_: None)
    monkeypatch.setattr(published, "load_weights", lambda *_: None)
    files = {"source": "file", "model": "ViT-S-32-alt", "file": place.folder / "weights.pt", "fit": None}
    chosen = place.settings.base.model_copy(update=files)
    with pytest.raises(InterruptedError):
        base.run(place.settings.model_copy(update={"base": chosen}), place.folder / "written", place.folder / "pairs")
    assert devices == [GPU, GPU]


COMMANDS = (
    "evaluate --benchmark coco_p", "serve --port 0", "explore", "index build {new}", "index append {index}",
    "index search {index} dog", "export --format open_clip --output {new}",
)  # fmt: skip


def test_every_command_refuses_a_gpu_that_is_absent_in_one_line(place: Place) -> None:
    make_index(place.folder)
    for command in COMMANDS:
        given = command.format(new=place.folder / "new", index=place.folder / "index").split()
        done = CliRunner().invoke(app, [*given, "--encoder", str(place.base), "--device", "cuda:7"])
        assert done.exit_code == 1, command
        assert done.stderr.splitlines()[-1].startswith("error: device is 'cuda:7', and torch finds"), command
        assert not (place.folder / "new").exists()
