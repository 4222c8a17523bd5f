"""Saved encoders come back as they were, and damaged ones are refused by name."""

from __future__ import annotations

import json
import pickle
from argparse import Namespace
from pathlib import Path
from threading import current_thread
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import save_file

from components.core.system.errors import InputError
from components.encoders.adapter import encoder as encoder_module
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.tokens import ClipTokenizer
from components.encoders.adapter.weights import load_weights
from tests.conftest import TINY


def test_saving_keeps_features_and_format_1_is_read(tiny_encoder: Encoder, tmp_path: Path, png: Any) -> None:
    sidecar = tiny_encoder.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    assert loaded.sidecar == sidecar
    texts = ["a rather long text about a dog on a sofa", "x", "a dog"]
    np.testing.assert_array_equal(loaded.embed_texts(texts), tiny_encoder.embed_texts(texts))
    images = [png((250, 0, 0)), png((0, 0, 250))]
    np.testing.assert_array_equal(loaded.embed_images(images), tiny_encoder.embed_images(images))
    each = np.concatenate([loaded.embed_texts([text]) for text in texts])
    np.testing.assert_allclose(loaded.embed_texts(texts, batch_size=2), each, atol=1e-6)
    content = json.loads((tmp_path / "encoder" / "encoder.json").read_text())
    old = {key: content[key] for key in ("name", "model", "architecture", "quick_gelu", "embed_dim", "method")}
    old |= {"format": 1, "context_length": 24, "image_size": 16, "weights_sha256": sidecar.weights_sha256}
    old["architecture"]["vision_cfg"] |= {"mean": [0.5] * 3, "std": [0.25] * 3}
    (tmp_path / "encoder" / "encoder.json").write_text(json.dumps(old))
    loaded = Encoder.load(tmp_path / "encoder").sidecar
    assert loaded.preparation == Preparation(size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert loaded.architecture == sidecar.architecture


TEXTS = ["a dog", "a much longer text about two dogs"]
PIXELS = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_texts_tokenized_ahead_keep_their_order(tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a dog" + " and a cat" * (number % 5) for number in range(11)]
    wanted = tiny_encoder.embed_texts(texts)
    threads = set[str]()
    inner = tiny_encoder.tokenizer

    def tokenize(self: object, texts: Any) -> Any:
        threads.add(current_thread().name)
        return ClipTokenizer.__call__(inner, texts)  # type: ignore[arg-type]

    tiny_encoder.tokenizer = type("Watched", (ClipTokenizer,), {"__call__": tokenize})(24)
    monkeypatch.setattr(Encoder, "_on_gpu", lambda _: True)
    monkeypatch.setattr(encoder_module, "_AHEAD", 4)
    np.testing.assert_allclose(tiny_encoder.embed_texts(texts), wanted, atol=1e-6)
    assert {name.partition("_")[0] for name in threads} == {"prefetch"}
    assert tiny_encoder.embed_texts([]).shape == (0, 16)


def test_raw_and_mixed_vectors_have_the_directions_of_unit_ones(tiny_encoder: Encoder, png: Any) -> None:
    for raw, unit in (
        (tiny_encoder.raw_texts(TEXTS), tiny_encoder.embed_texts(TEXTS)),
        (tiny_encoder.raw_pixels(PIXELS), tiny_encoder.embed_pixels(PIXELS)),
    ):
        directions, lengths = unit_rows(raw)
        np.testing.assert_allclose(directions, unit, atol=1e-6)
        assert lengths[0] != pytest.approx(lengths[1], rel=1e-4)
    images = [png((250, 0, 0)), png((0, 90, 250))]

    def embedded() -> list[Vectors]:
        return [tiny_encoder.embed_texts(TEXTS), tiny_encoder.embed_images(images), tiny_encoder.embed_pixels(PIXELS)]

    exact = embedded()
    tiny_encoder.autocast = torch.bfloat16
    for vectors, wanted in zip(embedded(), exact, strict=True):
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        assert not np.array_equal(vectors, wanted)
        assert (vectors * wanted).sum(axis=1).min() > 0.999


def test_image_tower_hash_follows_weights_heads_and_activation_not_the_text_tower(tiny_encoder: Encoder) -> None:
    before = tiny_encoder.image_tower_hash()
    tiny_encoder.model.positional_embedding.data += 1
    assert tiny_encoder.image_tower_hash() == before
    tiny_encoder.model.visual.proj.data += 1
    assert tiny_encoder.image_tower_hash() != before

    for change in ({"vision_cfg": {**TINY["vision_cfg"], "head_width": 4}}, {"quick_gelu": True}):
        before, architecture = tiny_encoder.image_tower_hash(), {**tiny_encoder.sidecar.architecture, **change}
        tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"architecture": architecture})
        assert tiny_encoder.image_tower_hash() != before, change


def test_weights_that_do_not_fit_their_sidecar_are_refused(tiny_encoder: Encoder, tmp_path: Path) -> None:
    tiny_encoder.save(tmp_path)
    weights, file = tmp_path / "encoder.safetensors", tmp_path / "encoder.json"
    sidecar, whole = json.loads(file.read_text()), weights.read_bytes()
    architecture = sidecar["architecture"] | {"quick_gelu": True}
    for changes, content, refusal in (
        ({}, whole[:1000], r"encoder\.safetensors is a broken checkpoint"),
        ({"weights_sha256": "0" * 64}, whole, "is not the file that"),
        ({"architecture": architecture}, whole, "sidecar has GELU"),
    ):
        weights.write_bytes(content)
        file.write_text(json.dumps(sidecar | changes))
        with pytest.raises(InputError, match=refusal):
            Encoder.load(tmp_path)
    with pytest.raises(InputError, match="holds no encoder"):
        Encoder.load(tmp_path / "nowhere")


def test_method_tensors_are_saved_and_loaded_with_the_encoder(tiny_encoder: Encoder, tmp_path: Path) -> None:
    tiny_encoder.extra = {"basis": torch.arange(6.0).reshape(2, 3).T}
    tiny_encoder.save(tmp_path / "with")
    loaded = Encoder.load(tmp_path / "with")
    assert torch.equal(loaded.extra["basis"], tiny_encoder.extra["basis"])
    loaded.extra = {}
    loaded.save(tmp_path / "without")
    assert Encoder.load(tmp_path / "without").extra == {}
    save_file({"basis": torch.zeros(3, 2)}, tmp_path / "with" / "method.safetensors")
    with pytest.raises(InputError, match=r"method\.safetensors is not the file that"):
        Encoder.load(tmp_path / "with")
    for name, refusal in (("method", "is missing"), ("encoder", "is missing: run")):
        (tmp_path / "with" / f"{name}.safetensors").unlink()
        with pytest.raises(InputError, match=rf"{name}\.safetensors {refusal}"):
            Encoder.load(tmp_path / "with")


class Payload:
    """What a hostile checkpoint would hold: it makes a file as soon as it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def _published(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The shapes in which checkpoints come, by file name."""
    spread = {f"module.{name}": value for name, value in state.items()}
    leftovers = {"epoch": 3, "optimizer": {"lr": 0.1}, "args": Namespace(lr=0.1)}
    return {
        "plain.pt": state,
        "training.pt": {"state_dict": spread, **leftovers},
        "model.bin": {"model": state},
        "half.pth": {name: value.half() if value.is_floating_point() else value for name, value in state.items()},
        "openai.ckpt": state | {"input_resolution": torch.tensor(16), "vocab_size": torch.tensor(49408)},
        "vector_scale.pt": state | {"logit_scale": state["logit_scale"].reshape(1)},
    }


@pytest.fixture
def other() -> Any:
    """The model of `tiny_encoder` with other weights."""
    torch.manual_seed(7)
    return open_clip.CLIP(**TINY)


@pytest.mark.parametrize("name", _published({"logit_scale": torch.zeros(())}))
def test_published_forms_are_read(name: str, tiny_encoder: Encoder, other: Any, tmp_path: Path) -> None:
    wanted = tiny_encoder.model.state_dict()
    torch.save(_published(wanted)[name], tmp_path / name)
    load_weights(other, tmp_path / name)
    tolerance = 1e-3 if name == "half.pth" else 0.0
    assert all(torch.allclose(value, wanted[key], atol=tolerance) for key, value in other.state_dict().items())


def test_old_flat_and_renamed_weights_are_read(tiny_encoder: Encoder, other: Any, tmp_path: Path) -> None:
    weights = tiny_encoder.model.state_dict()
    torch.save(weights, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    load_weights(other, tmp_path / "old.pt")
    assert torch.equal(other.text_projection, weights["text_projection"])
    save_file(weights, tmp_path / "flat.safetensors")
    custom = open_clip.CustomTextCLIP(**TINY)
    load_weights(custom, tmp_path / "flat.safetensors")
    assert torch.equal(custom.text.ln_final.weight, weights["ln_final.weight"])
    path, wanted = tmp_path / "other.pt", tiny_encoder.model.state_dict()
    torch.save({f"tensor_{place}": value for place, value in enumerate(wanted.values())}, path)
    load_weights(other, path, in_order=True)
    assert all(torch.equal(value, wanted[key]) for key, value in other.state_dict().items())
    for state in (reversed(wanted.items()), list(wanted.items())[:-1]):
        torch.save(dict(state), path)
        with pytest.raises(InputError, match=r"other\.pt does not fit the model"):
            load_weights(other, path, in_order=True)


@pytest.mark.parametrize("form", ["zip", "old", "bare pickle"])
def test_code_in_a_file_is_never_run(form: str, other: Any, tmp_path: Path) -> None:
    path, content = tmp_path / "hostile.pt", {"state_dict": {}, "extra": Payload(tmp_path / "ran")}
    bare = form == "bare pickle"
    with path.open("wb") as file:
        pickle.dump(content, file, 2) if bare else torch.save(
            content, file, _use_new_zipfile_serialization=form == "zip"
        )
    with pytest.raises(InputError, match=r"hostile\.pt holds more than weights"):
        load_weights(other, path)
    assert not (tmp_path / "ran").exists()
    # The file is hostile indeed.
    pickle.loads(path.read_bytes()) if bare else torch.load(path, weights_only=False)
    assert (tmp_path / "ran").exists()


def test_broken_files_and_wrong_numbers_are_named(other: Any, tmp_path: Path, tiny_encoder: Encoder) -> None:
    for name, content, reason in (
        ("empty.pt", b"", "broken checkpoint"),
        ("text.pt", b"not a checkpoint at all", "more than weights|broken checkpoint"),
        ("weights.npz", b"", "only .safetensors"),
        ("nothing.pt", {"epoch": 3}, "holds no weights"),
        ("other.pt", {"state_dict": {"text_projection": torch.zeros(3, 3)}}, "does not fit the model"),
        ("absent.pt", None, "is missing"),
    ):
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        elif content is not None:
            torch.save(content, tmp_path / name)
        with pytest.raises(InputError, match=rf"{name}.*({reason})"):
            load_weights(other, tmp_path / name)
    weights = tiny_encoder.model.state_dict()
    norm = weights["ln_final.weight"]
    for spoilt, message in (
        (torch.full_like(norm, float("nan")), "holds numbers that are not finite"),
        (norm.clone().index_fill_(0, torch.tensor([0]), float("inf")), "holds numbers that are not finite"),
        ((100 * norm).to(torch.int8), "holds int8 numbers: convert the weights"),
    ):
        state = {**weights, "ln_final.weight": spoilt}
        save_file(state, tmp_path / "weights.safetensors")
        torch.save(state, tmp_path / "weights.pt")
        for name in ("weights.safetensors", "weights.pt"):
            with pytest.raises(InputError, match=f"{name}: 'ln_final.weight' {message}"):
                load_weights(other, tmp_path / name)
