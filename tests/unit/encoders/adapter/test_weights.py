"""Weights files as others publish them: read when they hold weights, refused when reading them could run code."""

from __future__ import annotations

import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.weights import load_weights
from tests.conftest import TINY


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


def test_old_files_and_flat_weights_are_read(tiny_encoder: Encoder, other: Any, tmp_path: Path) -> None:
    weights = tiny_encoder.model.state_dict()
    torch.save(weights, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    load_weights(other, tmp_path / "old.pt")
    assert torch.equal(other.text_projection, weights["text_projection"])
    save_file(weights, tmp_path / "flat.safetensors")
    custom = open_clip.CustomTextCLIP(**TINY)
    load_weights(custom, tmp_path / "flat.safetensors")
    assert torch.equal(custom.text.ln_final.weight, weights["ln_final.weight"])


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


def test_broken_files_and_files_without_fitting_weights_are_named(other: Any, tmp_path: Path) -> None:
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


def test_numbers_that_are_not_weights_are_refused(tiny_encoder: Encoder, other: Any, tmp_path: Path) -> None:
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


def test_tensors_under_other_names_are_taken_in_order_and_refused_in_another(
    tiny_encoder: Encoder, other: Any, tmp_path: Path
) -> None:
    path, wanted = tmp_path / "other.pt", tiny_encoder.model.state_dict()
    torch.save({f"tensor_{place}": value for place, value in enumerate(wanted.values())}, path)
    load_weights(other, path, in_order=True)
    assert all(torch.equal(value, wanted[key]) for key, value in other.state_dict().items())
    for state in (reversed(wanted.items()), list(wanted.items())[:-1]):
        torch.save(dict(state), path)
        with pytest.raises(InputError, match=r"other\.pt does not fit the model"):
            load_weights(other, path, in_order=True)
