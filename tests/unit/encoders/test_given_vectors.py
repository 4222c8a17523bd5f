"""A user's vectors are compared with the base before they are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from components.core.system.errors import InputError
from components.core.tables.records import PAIRS, SPLITS
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.given_vectors import check_given
from tests.unit.core.pictures.test_rgb import sideways


def _write(folder: Path, vectors: Vectors, captions: list[str], pictures: list[str]) -> Path:
    """Files as the user has them, and the pairs that `prepare` makes of them; returns the folder of the pairs."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    table = pa.table({"caption": captions, "image_path": pictures, "embedding": lists})
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "vectors.parquet")
    for split in SPLITS:
        count = len(captions) if split == "test" else 0
        ids: list[object] = [f"{row:016x}" for row in range(count)]
        columns = {name: list[object]([None] * count) for name in PAIRS.schema.names}
        columns |= {"id": ids, "image_id": ids, "caption": list[object](captions[:count])}
        columns |= {"file": [str(folder / "vectors.parquet")] * count, "position": list[object](range(count))}
        PAIRS.write(folder.parent / "pairs" / f"{split}.parquet", columns)
    return folder.parent / "pairs"


def _shop(folder: Path, count: int) -> list[Path]:
    """Pictures of one colour each."""
    folder.mkdir()
    files = [folder / f"{number}.png" for number in range(count)]
    for number, file in enumerate(files):
        Image.new("RGB", (20, 16), (8 * number, 200 - 6 * number, 90)).save(file)
    return files


def test_pictures_are_embedded_again(tiny_encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models in one table, too: a median does not see a third of the rows."""
    folder, count = tmp_path / "shop", 30
    files, captions = _shop(folder, count), [f"colour {number}" for number in range(count)]
    vectors = tiny_encoder.embed_images([file.read_bytes() for file in files])
    # One is named by its whole path, one is missing.
    names = [str(files[0]), "none.png", *(file.name for file in files[2:])]
    check_given(tiny_encoder, _write(folder, vectors, captions, names))
    assert "29 pictures embedded again have a median cosine of 1.000 with the given vectors" in capsys.readouterr().out
    other = np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    with pytest.raises(InputError, match=r"29 pictures .* cosine of -?0\.\d+ .*: these are of another model") as error:
        check_given(tiny_encoder, _write(folder, other, captions, names))
    assert "\n" not in str(error.value)
    mixed = [np.where((np.arange(count) < foreign)[:, None], other, vectors) for foreign in (2, 10)]
    check_given(tiny_encoder, _write(folder, mixed[0], captions, names))
    with pytest.raises(InputError, match=r"a median cosine of 1\.000 .*, 9 of them less than 0\.99 \(least: \d\.png"):
        check_given(tiny_encoder, _write(folder, mixed[1], captions, names))


def test_vectors_of_a_tool_that_ignores_rotations_fit(
    tiny_encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, raw = tmp_path / "phone", [sideways(orientation) for orientation in (6, 8, 3)]
    folder.mkdir()
    for number, picture in enumerate(raw):
        (folder / f"{number}.png").write_bytes(picture)
    pixels = tiny_encoder.sidecar.preparation.decode(raw, turned=False)
    assert not np.allclose(tiny_encoder.embed_pixels(pixels), tiny_encoder.embed_images(raw), atol=1e-3)
    names = [f"{number}.png" for number in range(3)]
    for vectors in (tiny_encoder.embed_pixels(pixels), tiny_encoder.embed_images(raw)):
        check_given(tiny_encoder, _write(folder, vectors, names, names))
        assert "3 pictures embedded again have a median cosine of 1.000" in capsys.readouterr().out


def test_without_pictures_captions_must_find_their_vectors(
    tiny_encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, captions = tmp_path / "shop", [f"a mug with the number {number}, {number * 7}" for number in range(150)]
    vectors, names = tiny_encoder.embed_texts(captions), ["https://host/1.jpg"] * 150
    check_given(tiny_encoder, _write(folder, vectors, captions, names))
    assert "100% of 150 captions find their vector among the first 10 (chance 7%)" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"of 150 captions find .* of another model, or the base does not read"):
        check_given(tiny_encoder, _write(folder, vectors[np.arange(150) - 75], captions, names))
    half = np.where((np.arange(150) % 2 == 0)[:, None], vectors, np.random.default_rng(1).normal(size=vectors.shape))
    with pytest.raises(InputError, match=r"in the worse half .*: some or all vectors are of another model"):
        check_given(tiny_encoder, _write(folder, half.astype(np.float32), captions, names))
    # So few say nothing.
    check_given(tiny_encoder, _write(folder, vectors[::-1][:50], captions[:50], names[:50]))
