"""A Hugging Face sentence encoder as the text encoder of text-only benchmarks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from more_itertools import chunked

from components.core.compute.metrics import Features
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.files import content_hash, file_hash
from components.encoders.adapter.encoder import unit_rows
from components.encoders.adapter.precision import Precision, quantise
from components.encoders.language_models.weights import check_weight_index
from components.encoders.under_test import EncoderUnderTest

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_READ = {".safetensors", ".json", ".jinja", ".txt", ".model"}
"""Suffixes of the files that determine features: weights, settings, vocabularies."""
_PICKLED = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}
_BATCH = 32
"""Texts that go through the model at once: larger batches of texts of similar length are not faster on a CPU."""
_SHARE = 2_048
"""Texts that are sorted by length together, and steps of the progress bar."""


class SentenceEncoder:
    """Embeds texts with the modules that the folder lists, or with the mean of the token states if it lists none."""

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model
        self.autocast: torch.dtype | None = None
        """Element type of mixed precision; None for float32."""

    @property
    def device(self) -> torch.device:
        return torch.device(self._model.device)

    def to(self, device: str) -> SentenceEncoder:
        """Move the model to a device of `pick_device`; returns the encoder."""
        self._model.to(device)
        return self

    def compute_in(self, precision: Precision) -> None:
        """Embed in another precision from now on; an `InputError` if this machine does not support it."""
        if precision == "bf16":
            self.autocast = torch.bfloat16
        elif precision == "int8":
            quantise([self._model])

    def embed_texts(self, texts: Sequence[str], batch_size: int = _BATCH, title: str | None = None) -> Features:
        """Unit vectors `[texts, dim]` in the order given; a bar named `title` shows progress."""
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        vectors = np.zeros((len(texts), self._model.get_embedding_dimension() or 0), dtype=np.float32)
        mixed = torch.autocast(self._model.device.type, self.autocast, enabled=self.autocast is not None)
        with mixed, bar(title, len(texts), "text") if title else nullcontext() as progress:
            for rows in chunked(order, _SHARE):
                vectors[rows] = self._model.encode(
                    [texts[row] for row in rows],
                    batch_size=batch_size,
                    show_progress_bar=False,
                    normalize_embeddings=True,
                )
                if progress is not None:
                    progress.update(len(rows))
        # Vectors that were normalised in bfloat16 have length one to three digits.
        return vectors if self.autocast is None else unit_rows(vectors)[0]


def load_sentence_encoder(folder: Path) -> EncoderUnderTest:
    """The sentence encoder in `folder`, which has `modules.json` or only a model's `config.json`, and safetensors."""
    folder = folder.resolve()
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise InputError(f"{folder} is not a sentence encoder: give a folder with modules.json or config.json")
    _refuse_pickles(folder)
    check_weight_index(folder)
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True, "dtype": torch.float32},
        ).eval()
    except Exception as error:
        # Loaders raise many kinds of errors for damaged files.
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"{folder} cannot be loaded as a sentence encoder ({reason}): fetch or export it again"
        ) from None
    return EncoderUnderTest(as_file_name(folder.name), SentenceEncoder(model), _hash(folder))


def _refuse_pickles(folder: Path) -> None:
    """Raise `InputError` if a part of the model only has pickled weights."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    safe = {path.parent for path in files if path.suffix == ".safetensors"}
    only_pickled = sorted(path for path in files if path.suffix in _PICKLED and path.parent not in safe)
    if only_pickled or not safe:
        weights = only_pickled[0].relative_to(folder) if only_pickled else "no weights"
        raise InputError(f"{folder} has {weights} and no safetensors next to it: save it again as safetensors")


def _hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in _READ)
    return content_hash(*(part for path in files for part in (path.relative_to(folder).as_posix(), file_hash(path))))


def as_file_name(name: str) -> str:
    """An encoder's name as part of a file name."""
    return re.sub(r"[^\w.@-]+", "-", name) or "sentence-encoder"
