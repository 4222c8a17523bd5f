"""An image-text encoder: an open_clip model, its sidecar, and how texts and images become unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from components.encoders.architecture import build, has_quick_gelu, uses_quick_gelu
from components.encoders.images import decode, normalise
from components.encoders.sidecar import SIDECAR, WEIGHTS, Sidecar, read_sidecar
from components.encoders.text_tower import encode_tokens
from components.encoders.tokens import tokenize, trimmed
from components.errors import InputError
from components.files import atomic_folder, content_hash, file_hash, write_json
from components.progress import bar

Vectors = npt.NDArray[np.float32]


@dataclass
class Encoder:
    """An open_clip model in evaluation mode with its sidecar."""

    model: Any
    sidecar: Sidecar

    @staticmethod
    def create(name: str, model_name: str, config: dict[str, Any], method: str) -> Encoder:
        """A new encoder with random weights of an open_clip configuration."""
        model = build(config)
        sidecar = Sidecar(
            name=name,
            model=model_name,
            architecture=config,
            quick_gelu=has_quick_gelu(config),
            embed_dim=config["embed_dim"],
            context_length=config["text_cfg"].get("context_length", 77),
            image_size=config["vision_cfg"].get("image_size", 224),
            method=method,
        )
        return Encoder(model.eval(), sidecar)

    @staticmethod
    def load(folder: Path) -> Encoder:
        """Load an encoder that `save` wrote.

        Raises:
            InputError: the folder holds none, its weights are damaged or do not fit, or the model built
                from the sidecar has another activation than the sidecar says.
        """
        sidecar = read_sidecar(folder)
        model = build(sidecar.architecture)
        weights = folder / WEIGHTS
        load_weights(model, weights)
        if sidecar.weights_sha256 and file_hash(weights) != sidecar.weights_sha256:
            raise InputError(f"{weights} is not the file that {folder / SIDECAR} describes: run `dvc repro`")
        assert_activation(model, sidecar.quick_gelu, str(folder))
        return Encoder(model.eval(), sidecar)

    def save(self, folder: Path) -> Sidecar:
        """Write weights and sidecar, whole or not at all; returns the sidecar with its hashes filled in."""
        with atomic_folder(folder) as temporary:
            tensors = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}
            save_file(tensors, temporary / WEIGHTS)
            hashes = {
                "weights_sha256": file_hash(temporary / WEIGHTS),
                "image_tower_sha256": self.image_tower_hash(),
            }
            self.sidecar = self.sidecar.model_copy(update=hashes)
            write_json(temporary / SIDECAR, self.sidecar.model_dump())
        return self.sidecar

    def image_tower_hash(self) -> str:
        """Hash of everything that image embeddings depend on."""
        state = self.model.visual.state_dict()
        parts: list[str | bytes] = [self.sidecar.model, str(self.sidecar.image_size)]
        for name in sorted(state):
            parts += [name, state[name].detach().cpu().contiguous().numpy().tobytes()]
        return content_hash(*parts)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Vectors:
        """Unit vectors `[texts, dim]` in the order given; computed in order of length, so that batches stay short."""
        tokens = tokenize(texts, self.sidecar.context_length)
        order = np.argsort(tokens.argmax(axis=1), kind="stable") if len(texts) else np.zeros(0, np.int64)
        return self._in_batches(
            order, batch_size, title, "text", lambda rows: encode_tokens(self.model, trimmed(tokens[rows]))
        )

    @torch.inference_mode()
    def embed_images(
        self,
        images: Sequence[bytes],
        batch_size: int = 256,
        title: str | None = None,
        names: Sequence[str] | None = None,
    ) -> Vectors:
        """Unit vectors `[images, dim]` of encoded images.

        Raises:
            InputError: an image cannot be decoded; the message gives its name or row.
        """

        def features(rows: npt.NDArray[np.int64]) -> Tensor:
            batch_names = [names[row] if names is not None else f"row {row}" for row in rows]
            pixels = decode([images[row] for row in rows], self.sidecar.image_size, batch_names)
            return F.normalize(self.model.encode_image(normalise(pixels)).float(), dim=-1)

        return self._in_batches(np.arange(len(images)), batch_size, title, "image", features)

    def _in_batches(
        self,
        order: npt.NDArray[np.int64],
        batch_size: int,
        title: str | None,
        unit: str,
        features: Callable[[npt.NDArray[np.int64]], Tensor],
    ) -> Vectors:
        self.model.eval()
        result = np.empty((len(order), self.sidecar.embed_dim), dtype=np.float32)
        progress = bar(title, len(order), unit) if title else None
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            result[rows] = features(rows).cpu().numpy()
            if progress is not None:
                progress.update(len(rows))
        if progress is not None:
            progress.close()
        return result


def load_weights(model: Any, path: Path) -> None:
    """Load a safetensors file into `model`, every tensor matched.

    Raises:
        InputError: the file is missing, is no safetensors file (a pickle, say) or does not fit the model.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing: name an existing checkpoint or run `dvc repro`")
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: only .safetensors weights are loaded, others may run code: convert the file first")
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is a broken checkpoint ({error}): fetch or make it again") from None
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} does not fit the model ({reason}): correct base.model in params.yaml") from None


def assert_activation(model: Any, quick_gelu: bool, what: str) -> None:
    """Raise `InputError` when the built model's activation is not the recorded one."""
    if uses_quick_gelu(model) != quick_gelu:
        said = "QuickGELU" if quick_gelu else "GELU"
        raise InputError(
            f"{what}: the sidecar says {said} but the model config builds the other: correct 'architecture'"
        )
