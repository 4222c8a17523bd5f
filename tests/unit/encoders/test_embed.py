"""Image embeddings on disk: unit rows, their lengths, and nothing that was made from something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor
from torchvision import transforms

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash, image_id
from components.core.tables.records import PAIRS
from components.core.tables.work_shard import Shard
from components.encoders import embed
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Fit, decode
from components.encoders.embed import run
from components.encoders.embeddings import ImageEmbeddings
from tests.support.tracked_runs import find_runs


@pytest.fixture
def written(tiny_encoder: Encoder, settings: Settings, png: Any, tmp_path: Path) -> tuple[Path, Path]:
    """The folders of the embeddings and of the pairs they were made from."""
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    for number, split in enumerate(("train", "val", "test")):
        images = [png((200, 20 * number, row)) for row in (0, 120, 240)]
        ids = [f"{split}{row}" for row in range(3)]
        columns = {"id": ids, "image_id": list(map(image_id, images)), "image": images, "caption": ids}
        PAIRS.write(pairs / f"{split}.parquet", columns)
    tiny_encoder.save(tmp_path / "base")
    run(settings, tmp_path / "embeddings", pairs, tmp_path / "base")
    return tmp_path / "embeddings", pairs


def _write(folder: Path, images: Sequence[bytes], encoder: Encoder) -> None:
    """The same pairs in all splits, and the encoder as base."""
    ids = [f"row{row}" for row in range(len(images))]
    for split in ("train", "val", "test"):
        columns = {"id": ids, "image_id": [*map(image_id, images)], "image": images, "caption": ids}
        PAIRS.write(folder / f"{split}.parquet", columns)
    encoder.save(folder / "base")


def test_rows_are_unit_and_lengths_give_the_raw_features_back(
    written: tuple[Path, Path], tiny_encoder: Encoder
) -> None:
    folder, pairs = written
    for split in ("train", "val", "test"):
        found = ImageEmbeddings.open(folder, split, pairs / f"{split}.parquet")
        assert list(found.ids) == [f"{split}{row}" for row in range(3)]
        np.testing.assert_allclose(np.linalg.norm(found.features, axis=1), 1, rtol=1e-6)
        images = PAIRS.read(pairs / f"{split}.parquet", ["image"])["image"].to_pylist()
        raw = tiny_encoder.image_features(images)
        np.testing.assert_allclose(found.features * found.norms[:, np.newaxis], raw, rtol=1e-5)
        assert found.norms.dtype == np.float32
        assert found.image_tower_sha256 == tiny_encoder.image_tower_hash()


@pytest.mark.parametrize("squash", [False, True])
def test_squashed_pictures_are_prepared_as_semclips_code_does(
    tiny_encoder: Encoder, settings: Settings, tmp_path: Path, *, squash: bool
) -> None:
    """The transform of the released src/dataset.py. Embeddings made in the other way are not taken up again."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, size=(30, 50, 3), dtype=np.uint8))
    noise.save(tmp_path / "a.png")
    _write(tmp_path, [(tmp_path / "a.png").read_bytes()], tiny_encoder)
    for way in (not squash, squash):
        embedding = settings.embed.model_copy(update={"squash": way, "state": tmp_path / "state"})
        run(
            settings.model_copy(update={"embed": embedding}),
            tmp_path / "out",
            tmp_path,
            tmp_path / "base",
            shard=Shard(),
        )
    run(settings.model_copy(update={"embed": embedding}), tmp_path / "out", tmp_path, tmp_path / "base")
    size = tiny_encoder.sidecar.image_size
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    theirs = transforms.Compose(
        [transforms.Resize((size, size)), transforms.ToTensor(), transforms.Normalize(mean=mean, std=deviation)]
    )
    expected = tiny_encoder.embed_pixels(theirs(noise)[None])
    found = ImageEmbeddings.open(tmp_path / "out", "train", tmp_path / "train.parquet").features
    assert np.allclose(found, expected, atol=1e-5) == squash


def test_an_image_with_several_captions_is_embedded_once(
    tiny_encoder: Encoder,
    settings: Settings,
    png: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    track_in: Callable[[Path], None],
) -> None:
    images = [png((200, 20, row)) for row in (0, 0, 120, 0, 240, 240)]
    _write(tmp_path, images, tiny_encoder)
    seen: list[int] = []
    pixel_features = Encoder.pixel_features

    def watched(self: Encoder, pixels: Tensor) -> Any:
        seen.append(len(pixels))
        return pixel_features(self, pixels)

    monkeypatch.setattr(Encoder, "pixel_features", watched)
    track_in(tmp_path)
    run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base", track=True)
    assert seen == [3] * 3
    [tracked] = find_runs(settings.dataset.name, "embed")
    assert tracked.data.metrics.keys() == {"train", "val", "test", "seconds", "rows_per_second"}
    assert tracked.data.tags["input.base.sha256"] == file_hash(tmp_path / "base" / "encoder.safetensors")
    found = ImageEmbeddings.open(tmp_path / "embeddings", "train", tmp_path / "train.parquet")
    raw = tiny_encoder.image_features(images)
    np.testing.assert_allclose(found.features * found.norms[:, np.newaxis], raw, rtol=1e-5)


def test_a_feature_that_is_not_finite_is_refused_with_its_picture(
    tiny_encoder: Encoder, settings: Settings, png: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [png((200, 20, row)) for row in (0, 120, 120)]
    _write(tmp_path, images, tiny_encoder)
    pixel_features = Encoder.pixel_features

    def overflowing(self: Encoder, pixels: Tensor) -> Any:
        found = pixel_features(self, pixels)
        found[1, 0] = np.inf
        return found

    monkeypatch.setattr(Encoder, "pixel_features", overflowing)
    with pytest.raises(InputError, match=r"encoder '.+' gives picture 'row1' a feature that is not finite"):
        run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base")
    assert not (tmp_path / "embeddings").exists()


def test_a_picture_that_cannot_be_decoded_is_named_by_its_file(
    tiny_encoder: Encoder, settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "line.png"
    Image.new("L", (300, 1)).save(path)
    row = {"id": ["a"], "image_id": [image_id(path.read_bytes())], "caption": ["x"], "file": [str(path)]}
    for split in ("train", "val", "test"):
        PAIRS.write(tmp_path / f"{split}.parquet", row | {"size": [path.stat().st_size]})
    tiny_encoder.save(tmp_path / "base")
    with pytest.raises(InputError, match=r"image /.*/line\.png cannot be decoded \(300x1 pixels are too long"):
        run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base")


def test_damaged_and_missing_arrays_and_other_pairs_are_refused(written: tuple[Path, Path]) -> None:
    folder, pairs = written

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message):
            ImageEmbeddings.open(folder, "train", pairs / "train.parquet")

    for name in ("train.npy", "train.norms.npy", "manifest.json"):
        whole = (folder / name).read_bytes()
        for content in (b"", b"no array", b"PK\x03\x04", whole[:-4]):
            (folder / name).write_bytes(content)
            refused(rf"{name} is damaged \(.*\): delete its folder and run `dvc repro embed`")
        (folder / name).unlink()
        refused(rf"{name} is missing")
        (folder / name).write_bytes(whole)
    (pairs / "train.parquet").write_bytes((pairs / "val.parquet").read_bytes())
    refused("another version")


def test_what_is_done_is_not_embedded_again(
    tiny_encoder: Encoder, settings: Settings, png: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [png((200, 20, row)) for row in range(7)]
    _write(tmp_path, images, tiny_encoder)
    small = settings.embed.model_copy(update={"part": 2, "batch_size": 2})
    settings = settings.model_copy(update={"embed": small})
    run(settings, tmp_path / "calm", tmp_path, tmp_path / "base")
    assert not list(small.state.rglob("*.npy"))
    seen, pixel_features = [0], Encoder.pixel_features

    def stopped(self: Encoder, pixels: Tensor) -> Any:
        seen[0] += len(pixels)
        if seen[0] == 11:
            raise KeyboardInterrupt
        return pixel_features(self, pixels)

    monkeypatch.setattr(Encoder, "pixel_features", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base")
    run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base")
    # Of 21 pictures two were at work when it stopped.
    assert seen[0] == 21 + 2
    for file in (tmp_path / "calm").iterdir():
        assert (tmp_path / "embeddings" / file.name).read_bytes() == file.read_bytes()


def test_a_tower_that_computes_on_all_cores_takes_turns_with_decoding(
    tiny_encoder: Encoder, settings: Settings, png: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [png((200, 20, row)) for row in range(6)]
    _write(tmp_path, images, tiny_encoder)
    small = settings.embed.model_copy(update={"batch_size": 2, "device": "cpu"})
    decoded, ahead, pixel_features = list[str](), list[int](), Encoder.pixel_features

    def watched(raw: Sequence[bytes], size: int, names: Sequence[str], _fit: Fit | None) -> Tensor:
        decoded.extend(names)
        return decode(raw, size, names)

    def waiting(self: Encoder, pixels: Tensor) -> Any:
        # Gives threads that decode meanwhile the time to show it.
        time.sleep(0.05)
        ahead.append(len(decoded) - 2 * (len(ahead) + 1))
        return pixel_features(self, pixels)

    monkeypatch.setattr(embed, "decode", watched)
    monkeypatch.setattr(Encoder, "pixel_features", waiting)
    for cores, expected in ((1, [0] * 9), (64, [4, 2, 0] * 3)):
        decoded.clear()
        ahead.clear()
        monkeypatch.setattr(embed.os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        output = tmp_path / f"by {cores} cores"
        run(settings.model_copy(update={"embed": small}), output, tmp_path, tmp_path / "base")
        # Of three batches in each of three splits.
        assert ahead == expected
    for file in output.iterdir():
        assert (tmp_path / "by 1 cores" / file.name).read_bytes() == file.read_bytes()


def test_shards_embed_each_part_once_and_the_stage_gives_the_same_bytes(
    tiny_encoder: Encoder,
    settings: Settings,
    png: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images = [png((200, 20, row)) for row in range(7)]
    _write(tmp_path, images, tiny_encoder)
    small = settings.embed.model_copy(update={"part": 2, "batch_size": 2})
    settings = settings.model_copy(update={"embed": small})
    folders = (tmp_path / "embeddings", tmp_path, tmp_path / "base")
    run(settings, tmp_path / "calm", *folders[1:])
    made: list[dict[str, int]] = []
    for shard in (Shard(0, 3), Shard(1, 3), Shard(2, 3), Shard(1, 3)):
        run(settings, *folders, shard=shard)
        made.append({str(path): path.stat().st_ino for path in small.state.rglob("*.npy")})
    # Of four parts in each of three splits.
    assert [len(files) for files in made] == [6, 9, 12, 12]
    assert made[0].items() < made[1].items() < made[2].items() == made[3].items()
    told = [f"embed shard {shard}: made {count}" for shard, count in (("0/3", 6), ("1/3", 3), ("2/3", 3), ("1/3", 0))]
    assert capsys.readouterr().out.splitlines() == told
    assert not folders[0].exists()
    # The stage only puts together what is there.
    monkeypatch.delattr(Encoder, "pixel_features")
    run(settings, *folders)
    for file in (tmp_path / "calm").iterdir():
        assert (folders[0] / file.name).read_bytes() == file.read_bytes()


def _given(folder: Path, encoder: Encoder, dim: int) -> Any:
    """Pairs that are rows of two arrays, in another order than the arrays'."""
    vectors = np.random.default_rng(0).normal(size=(6, dim)).astype(np.float16)
    np.save(folder / "a.npy", vectors[:3])
    np.save(folder / "b.npy", vectors[3:])
    ids = [f"row{row}" for row in range(6)]
    places = {"file": [str(folder / "b.npy")] * 3 + [str(folder / "a.npy")] * 3, "position": [2, 0, 1, 0, 1, 2]}
    for split in ("train", "val", "test"):
        PAIRS.write(folder / f"{split}.parquet", {"id": ids, "image_id": ids, "caption": ids, **places})
    encoder.save(folder / "base")
    return vectors[[5, 3, 4, 0, 1, 2]].astype(np.float32)


def test_given_embeddings_are_taken_in_the_order_of_the_pairs(
    tiny_encoder: Encoder, settings: Settings, tmp_path: Path
) -> None:
    expected = _given(tmp_path, tiny_encoder, tiny_encoder.sidecar.embed_dim)
    run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base")
    found = ImageEmbeddings.open(tmp_path / "embeddings", "val", tmp_path / "val.parquet")
    np.testing.assert_allclose(found.features * found.norms[:, np.newaxis], expected, rtol=1e-5)


def test_given_embeddings_of_another_width_are_refused(
    tiny_encoder: Encoder, settings: Settings, tmp_path: Path
) -> None:
    _given(tmp_path, tiny_encoder, 5)
    with pytest.raises(InputError, match=r"b\.npy has embeddings of 5 numbers, those of the base have \d+: set base"):
        run(settings, tmp_path / "embeddings", tmp_path, tmp_path / "base")
