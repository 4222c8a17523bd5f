"""Image embeddings on disk: unit rows, their lengths, and nothing that was made from something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash, image_id
from components.core.tables.records import PAIRS
from components.core.tables.work_shard import Shard
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.embed import run
from components.encoders.embeddings import ImageEmbeddings
from tests.support.tracked_runs import find_runs

SPLITS = ("train", "val", "test")


@dataclass
class Stage:
    """The stage, in a folder that holds its base encoder, pairs and output."""

    folder: Path
    encoder: Encoder
    settings: Settings

    def write(self, images: Sequence[bytes]) -> None:
        """Write pairs of these pictures in every split."""
        for split in SPLITS:
            ids = [f"{split}{row}" for row in range(len(images))]
            columns = {"id": ids, "image_id": [*map(image_id, images)], "image": [*images], "caption": ids}
            PAIRS.write(self.folder / f"{split}.parquet", columns)

    def change(self, **values: Any) -> None:
        """Change settings of the stage."""
        changed = self.settings.embed.model_copy(update=values)
        self.settings = self.settings.model_copy(update={"embed": changed})

    def run(self, output: str = "embeddings", **options: Any) -> Path:
        run(self.settings, self.folder / output, self.folder, self.folder / "base", **options)
        return self.folder / output

    def embeddings(self, split: str = "train") -> ImageEmbeddings:
        return ImageEmbeddings.open(self.folder / "embeddings", split, self.folder / f"{split}.parquet")


@pytest.fixture
def stage(tmp_path: Path, tiny_encoder: Encoder, settings: Settings) -> Stage:
    tiny_encoder.save(tmp_path / "base")
    return Stage(tmp_path, tiny_encoder, settings)


def _watch(monkeypatch: pytest.MonkeyPatch, watch: Callable[[Tensor], None]) -> None:
    """Call `watch` with each batch of pixels before it is embedded."""
    pixel_features = Encoder.pixel_features

    def watched(self: Encoder, pixels: Tensor) -> Any:
        watch(pixels)
        return pixel_features(self, pixels)

    monkeypatch.setattr(Encoder, "pixel_features", watched)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_rows_are_unit_with_lengths_of_their_own_and_damaged_arrays_are_refused(stage: Stage, png: Any) -> None:
    images = [png((200, 20, row)) for row in (0, 120, 240)]
    stage.write(images)
    folder = stage.run()
    for split in SPLITS:
        found = stage.embeddings(split)
        assert list(found.ids) == [f"{split}{row}" for row in range(3)]
        np.testing.assert_allclose(np.linalg.norm(found.features, axis=1), 1, rtol=1e-6)
        raw = stage.encoder.image_features(images)
        np.testing.assert_allclose(found.features * found.norms[:, np.newaxis], raw, rtol=1e-5)
        assert found.norms.dtype == np.float32
        assert found.image_tower_sha256 == stage.encoder.image_tower_hash()

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message):
            stage.embeddings()

    for name in ("train.npy", "train.norms.npy", "manifest.json"):
        whole = (folder / name).read_bytes()
        for content in (b"", b"no array", b"PK\x03\x04", whole[:-4]):
            (folder / name).write_bytes(content)
            refused(rf"{name} is damaged \(.*\): delete its folder and run `dvc repro embed`")
        (folder / name).unlink()
        refused(rf"{name} is missing")
        (folder / name).write_bytes(whole)
    (stage.folder / "train.parquet").write_bytes((stage.folder / "val.parquet").read_bytes())
    refused("another version")


def test_an_image_with_several_captions_is_embedded_once(
    stage: Stage, png: Any, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None]
) -> None:
    images = [png((200, 20, row)) for row in (0, 0, 120, 0, 240, 240)]
    stage.write(images)
    seen: list[int] = []
    _watch(monkeypatch, lambda pixels: seen.append(len(pixels)))
    track_in(stage.folder)
    stage.run(track=True)
    assert seen == [3] * 3
    [tracked] = find_runs(stage.settings.dataset.name, "embed")
    expected = {"train", "val", "test", "seconds", "rows_per_second", "processor_seconds"}
    assert tracked.data.metrics.keys() == expected
    assert tracked.data.tags["input.base.sha256"] == file_hash(stage.folder / "base" / "encoder.safetensors")
    found, raw = stage.embeddings(), stage.encoder.image_features(images)
    np.testing.assert_allclose(found.features * found.norms[:, np.newaxis], raw, rtol=1e-5)


def test_pictures_without_finite_features_are_named(stage: Stage, png: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.write([png((200, 20, row)) for row in (0, 120, 120)])
    infinite = np.array([[1.0] * 16, [np.inf] * 16], np.float32)
    monkeypatch.setattr(Encoder, "pixel_features", lambda *_: infinite)
    with pytest.raises(InputError, match=r"encoder '.+' gives picture 'train1' a feature that is not finite"):
        stage.run()
    assert not (stage.folder / "embeddings").exists()
    path = stage.folder / "line.png"
    Image.new("L", (300, 1)).save(path)
    row = {"id": ["a"], "image_id": [image_id(path.read_bytes())], "caption": ["x"], "file": [str(path)]}
    for split in SPLITS:
        PAIRS.write(stage.folder / f"{split}.parquet", row | {"size": [path.stat().st_size]})
    with pytest.raises(InputError, match=r"image /.*/line\.png cannot be decoded \(300x1 pixels are too long"):
        stage.run()


def test_a_stopped_stage_makes_no_part_again(stage: Stage, png: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.write([png((200, 20, row)) for row in range(7)])
    stage.change(part=2, batch_size=2)
    undisturbed = stage.run("undisturbed")
    assert not list(stage.settings.embed.state.rglob("*.npy"))
    seen = [0]

    def stop(pixels: Tensor) -> None:
        seen[0] += len(pixels)
        if seen[0] == 11:
            raise KeyboardInterrupt

    _watch(monkeypatch, stop)
    with pytest.raises(KeyboardInterrupt):
        stage.run()
    resumed = stage.run()
    # Of 21 pictures two were at work when it stopped.
    assert seen[0] == 21 + 2
    assert _contents(resumed) == _contents(undisturbed)


def test_a_tower_on_all_cores_takes_turns_to_decode(stage: Stage, png: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.write([png((200, 20, row)) for row in range(6)])
    stage.change(batch_size=2)
    decoded, ahead = list[str](), list[int]()

    def watched(preparation: Preparation, raw: Sequence[bytes], names: Sequence[str]) -> Tensor:
        decoded.extend(names)
        return decode(preparation, raw, names)

    def wait(_pixels: Tensor) -> None:
        # Gives threads that decode meanwhile the time to show it.
        time.sleep(0.05)
        ahead.append(len(decoded) - 2 * (len(ahead) + 1))

    decode = Preparation.decode
    monkeypatch.setattr(Preparation, "decode", watched)
    _watch(monkeypatch, wait)
    contents = []
    for cores, expected in ((1, [0] * 9), (64, [4, 2, 0] * 3)):
        decoded.clear()
        ahead.clear()
        monkeypatch.setattr(embed.os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        contents.append(_contents(stage.run(f"by {cores} cores")))
        # Of three batches in each of three splits.
        assert ahead == expected
    assert contents[0] == contents[1]


def test_shards_embed_each_part_once_and_the_stage_gives_the_same_bytes(
    stage: Stage, png: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write([png((200, 20, row)) for row in range(7)])
    stage.change(part=2, batch_size=2)
    undisturbed = stage.run("undisturbed")
    made: list[dict[str, int]] = []
    for shard in (Shard(0, 3), Shard(1, 3), Shard(2, 3), Shard(1, 3)):
        output = stage.run(shard=shard)
        made.append({str(path): path.stat().st_ino for path in stage.settings.embed.state.rglob("*.npy")})
    # Of four parts in each of three splits.
    assert [len(files) for files in made] == [6, 9, 12, 12]
    assert made[0].items() < made[1].items() < made[2].items() == made[3].items()
    counts = (("0/3", 6), ("1/3", 3), ("2/3", 3), ("1/3", 0))
    assert capsys.readouterr().out.splitlines() == [f"embed shard {shard}: made {count}" for shard, count in counts]
    assert not output.exists()
    # The stage only puts together what the shards made.
    monkeypatch.delattr(Encoder, "pixel_features")
    assert _contents(stage.run()) == _contents(undisturbed)


def test_given_embeddings_are_in_the_order_of_the_pairs_and_have_the_width_of_the_base(stage: Stage) -> None:
    a, b, ids = stage.folder / "a.npy", stage.folder / "b.npy", [f"row{row}" for row in range(6)]
    rows = {"id": ids, "image_id": ids, "caption": ids, "file": [str(b)] * 3 + [str(a)] * 3}
    for split in SPLITS:
        PAIRS.write(stage.folder / f"{split}.parquet", rows | {"position": [2, 0, 1, 0, 1, 2]})

    def give(dim: int) -> Any:
        vectors = np.random.default_rng(0).normal(size=(6, dim)).astype(np.float16)
        np.save(a, vectors[:3])
        np.save(b, vectors[3:])
        return vectors[[5, 3, 4, 0, 1, 2]].astype(np.float32)

    expected = give(stage.encoder.sidecar.embed_dim)
    stage.run()
    found = stage.embeddings("val")
    np.testing.assert_allclose(found.features * found.norms[:, np.newaxis], expected, rtol=1e-5)
    give(5)
    with pytest.raises(InputError, match=r"b\.npy has embeddings of 5 numbers, those of the base have \d+: set base"):
        stage.run()
