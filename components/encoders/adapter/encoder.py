"""`Encoder`: towers, tokenizer and sidecar, with methods to embed, load and save."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import Tensor

from components.core.compute.devices import fetched, in_batches
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.ahead import prefetched
from components.core.tables.files import atomic_folder, content_hash, file_hash, write_json
from components.encoders.adapter.architecture import build, uses_quick_gelu
from components.encoders.adapter.model_configs import own_image_tower, pooling_of, preparation_of, without_folders
from components.encoders.adapter.precision import Precision, quantise, round_weights, text_parts
from components.encoders.adapter.sidecar import METHOD_TENSORS, SIDECAR, TEXT_FILES, WEIGHTS, Sidecar, read_sidecar
from components.encoders.adapter.text_tower import encode_tokens, text_features
from components.encoders.adapter.tokens import HuggingFaceTokenizer, Tokenizer, Tokens, tokenizer_of, trimmed
from components.encoders.adapter.weights import EXPORTED, load_clip_model, load_weights, read_safetensors, weights_file

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
_Encode = Callable[[Any, Tensor], Tensor]
_Part = tuple[int, Rows, Callable[[Rows], Tensor]]
"""The number of the first row, rows in the order of batches, and a function that returns the features of some."""
_AHEAD = 65_536
"""Texts that are tokenized, and sorted by length, together on a GPU."""

_AT_ONCE = 32
"""Pictures that pass through an image tower together on a processor."""

_LEAST_SHARE = 0.9
"""Smallest share of a text tower's embeddings that its tokenizer has ids for; vocabularies are padded by less."""


@dataclass
class Encoder:
    """A model in evaluation mode with its tokenizer and sidecar.

    Attributes:
        model: an open_clip model or a `LanguageClip`; its image tower is `model.visual`.
        extra: its method's own tensors, by name.
        autocast: element type of mixed precision for embedding; None for float32.
    """

    model: Any
    sidecar: Sidecar
    tokenizer: Tokenizer
    extra: dict[str, Tensor] = field(default_factory=dict)
    autocast: torch.dtype | None = None

    @staticmethod
    def create(
        name: str, model_name: str, config: dict[str, Any], method: str, preprocess: Mapping[str, Any] | None = None
    ) -> Encoder:
        """A new encoder with random weights of an open_clip configuration.

        Args:
            preprocess: values of the preparation of pictures that are not CLIP's.
        """
        return Encoder.of(build(config), tokenizer_of(config), name, model_name, config, method, preprocess)

    @staticmethod
    def of(
        model: Any,
        tokenizer: Tokenizer,
        name: str,
        model_name: str,
        config: dict[str, Any],
        method: str,
        preprocess: Mapping[str, Any] | None = None,
    ) -> Encoder:
        """An encoder of a model that was built from `config`."""
        _check_vocabulary(model, tokenizer, model_name)
        sidecar = Sidecar(
            name=name,
            model=model_name,
            architecture=without_folders(config),
            quick_gelu=uses_quick_gelu(model),
            embed_dim=config["embed_dim"],
            context_length=tokenizer.context_length,
            preparation=preparation_of(config, preprocess or {}, model_name),
            tokenizer=tokenizer.identity,
            trims_texts=tokenizer.trims,
            pooling=pooling_of(config["text_cfg"]),
            logit_bias=getattr(model, "logit_bias", None) is not None,
            method=method,
        )
        return Encoder(model.eval(), sidecar, tokenizer)

    @staticmethod
    def load(folder: Path) -> Encoder:
        """Load an encoder that `save` or `cliptune export` wrote; everything it needs is in its folder."""
        sidecar = read_sidecar(folder)
        file = weights_file(folder, sidecar)
        exported = file.name != WEIGHTS
        if exported:
            # Hashes of the files that were exported; those of the tensors are computed when they are needed.
            sidecar = sidecar.model_copy(update={"weights_sha256": "", "image_tower_sha256": ""})
        text_files = folder if exported else folder / TEXT_FILES if (folder / TEXT_FILES).is_dir() else None
        model = build(sidecar.architecture, text_files)
        (load_clip_model if file.name == EXPORTED["huggingface"] else load_weights)(model, file)
        tokenizer = tokenizer_of(sidecar.architecture, text_files)
        extra = read_safetensors(folder / METHOD_TENSORS) if sidecar.method_tensors_sha256 else {}
        hashes = {WEIGHTS: sidecar.weights_sha256, METHOD_TENSORS: sidecar.method_tensors_sha256}
        for name, recorded in hashes.items():
            if recorded and file_hash(folder / name) != recorded:
                raise InputError(f"{folder / name} is not the file that {folder / SIDECAR} describes: run `dvc repro`")
        if tokenizer.identity != sidecar.tokenizer:
            raise InputError(
                f"{folder / TEXT_FILES} holds another tokenizer than {folder / SIDECAR} describes: run `dvc repro`"
            )
        if uses_quick_gelu(model) != sidecar.quick_gelu:
            recorded = "QuickGELU" if sidecar.quick_gelu else "GELU"
            raise InputError(f"{folder}: the sidecar has {recorded}, the built model the other: correct 'architecture'")
        return Encoder(model.eval(), sidecar, tokenizer, extra)

    def save(self, folder: Path) -> Sidecar:
        """Write all its files atomically; returns the sidecar with the files' hashes."""
        with atomic_folder(folder) as temporary:
            tensors = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}
            save_file(tensors, temporary / WEIGHTS)
            hashes = {
                "weights_sha256": file_hash(temporary / WEIGHTS),
                "method_tensors_sha256": "",
                "image_tower_sha256": self.image_tower_hash(),
            }
            if self.extra:
                extra = {name: tensor.contiguous() for name, tensor in self.extra.items()}
                save_file(extra, temporary / METHOD_TENSORS)
                hashes["method_tensors_sha256"] = file_hash(temporary / METHOD_TENSORS)
            self.save_text_files(temporary / TEXT_FILES)
            self.sidecar = self.sidecar.model_copy(update=hashes)
            write_json(temporary / SIDECAR, self.sidecar.model_dump())
        return self.sidecar

    def image_tower_hash(self) -> str:
        """Hash of everything that image embeddings depend on."""
        state = self.model.visual.state_dict()
        preparation = self.sidecar.preparation
        parts: list[str | bytes] = [self.sidecar.model, str(preparation.size)]
        if others := preparation.differences():
            parts.append(repr(sorted(others.items())))
        if own := own_image_tower(self.sidecar.model, self.sidecar.architecture):
            parts.append(own)
        for name in sorted(state):
            parts += [name, state[name].detach().cpu().contiguous().numpy().tobytes()]
        return content_hash(*parts)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], batch_size: int | None = None, title: str | None = None) -> Vectors:
        """Unit vectors `[texts, dim]` in the given order; batches have texts of similar length.

        Args:
            batch_size: by default 256, and on a GPU as many as fit into its free memory.
        """
        return self._of_texts(encode_tokens, texts, batch_size, title)

    @torch.inference_mode()
    def raw_texts(self, texts: Sequence[str], batch_size: int | None = None, title: str | None = None) -> Vectors:
        """Raw features `[texts, dim]` of the text tower."""
        return self._of_texts(text_features, texts, batch_size, title)

    @torch.inference_mode()
    def embed_tokens(self, tokens: Tokens) -> Vectors:
        """`embed_texts` of the ids `[texts, context_length]` that the tokenizer made of them."""
        rows, features = self._sorted(encode_tokens, tokens)
        return self._in_batches([(0, rows, features)], len(tokens), len(tokens), None, "text")

    def _of_texts(self, encode: _Encode, texts: Sequence[str], batch_size: int | None, title: str | None) -> Vectors:
        # A GPU is faster than a tokenizer, which therefore works ahead; towers on the CPU leave it no core.
        ahead = self._on_gpu()
        share = _AHEAD if ahead else len(texts)
        starts = range(0, len(texts), max(1, share))

        def parts(_stop: Event) -> Generator[_Part]:
            for start in starts:
                yield start, *self._sorted(encode, self.tokenizer(texts[start : start + share]))

        with closing(parts(Event()) if len(starts) < 2 else prefetched(parts, 1)) as made:
            return self._in_batches(made, len(texts), batch_size, title, "text")

    def _sorted(self, encode: _Encode, tokens: Tokens) -> tuple[Rows, Callable[[Rows], Tensor]]:
        """Rows of tokens by length, and a function that returns the features of some rows."""
        lengths = self.tokenizer.lengths(tokens)
        order = np.argsort(lengths, kind="stable")

        def features(rows: Rows) -> Tensor:
            return encode(self.model, trimmed(tokens[rows], lengths[rows]).to(self.device))

        # The longest texts first: their batch shows how many fit into the memory of a GPU.
        return order[::-1] if self._on_gpu() else order, features

    def embed_images(
        self,
        images: Sequence[bytes],
        batch_size: int | None = None,
        title: str | None = None,
        names: Sequence[str] | None = None,
    ) -> Vectors:
        """Unit vectors `[images, dim]` of encoded images."""
        return unit_rows(self.image_features(images, batch_size, title, names))[0]

    @torch.inference_mode()
    def image_features(
        self,
        images: Sequence[bytes],
        batch_size: int | None = None,
        title: str | None = None,
        names: Sequence[str] | None = None,
    ) -> Vectors:
        """Raw features `[images, dim]` of encoded images."""

        def features(rows: Rows) -> Tensor:
            batch_names = [names[row] if names is not None else f"row {row}" for row in rows]
            return self._of_pixels(self.sidecar.preparation.decode([images[row] for row in rows], batch_names))

        return self._in_batches([(0, np.arange(len(images)), features)], len(images), batch_size, title, "image")

    @torch.inference_mode()
    def embed_pixels(self, pixels: Tensor) -> Vectors:
        """Unit vectors `[images, dim]` of RGB pixels `[images, 3, size, size]`, uint8 or already normalised float32."""
        return unit_rows(self.raw_pixels(pixels))[0]

    def raw_pixels(self, pixels: Tensor) -> Vectors:
        """Raw features `[images, dim]` of the same pixels."""
        self.model.eval()
        with self.mixed():
            return self.pixel_features(pixels)

    def to(self, device: str) -> Encoder:
        """Move the towers to a device of `pick_device`; returns the encoder."""
        self.model.to(device)
        # By default a GPU rounds the factors of float32 convolutions: its vectors would not fit those of a CPU.
        torch.backends.cudnn.allow_tf32 = False
        return self

    @property
    def device(self) -> torch.device:
        """The device of the towers; texts and pictures are moved there, features come back."""
        device: torch.device = self.model.logit_scale.device
        return device

    def _on_gpu(self) -> bool:
        return self.device.type != "cpu"

    def mixed(self) -> torch.autocast:
        """A context in which the towers compute in the encoder's precision."""
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    @torch.inference_mode()
    def pixel_features(self, pixels: Tensor) -> Vectors:
        """Raw features `[images, dim]` of RGB pixels `[images, 3, size, size]`, uint8 or already normalised."""
        parts = in_batches(
            len(pixels), len(pixels), "image", str(self.device), lambda rows: fetched(self._of_pixels(pixels[rows]))
        )
        features: Vectors = np.concatenate([part for _, part in parts])
        return features

    def _of_pixels(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.device)
        if not pixels.is_floating_point():
            pixels = self.sidecar.preparation.normalise(pixels)
        # On processors more pictures at once take more memory, and not less time.
        step = len(pixels) if self._on_gpu() else _AT_ONCE
        parts = (pixels[first : first + step] for first in range(0, len(pixels), step))
        return torch.cat([self.model.encode_image(part).float() for part in parts])

    def _in_batches(
        self, parts: Iterable[_Part], count: int, batch_size: int | None, title: str | None, unit: str
    ) -> Vectors:
        self.model.eval()
        result = np.empty((count, self.sidecar.embed_dim), dtype=np.float32)
        # One block around all batches: autocast keeps rounded weights until its end.
        with self.mixed(), bar(title, count, unit) if title else nullcontext() as progress:
            for start, order, features in parts:
                compute = partial(_fetched_rows, features, order)
                for batch, vectors in in_batches(len(order), batch_size, unit, str(self.device), compute):
                    result[start + order[batch]] = vectors
                    if progress is not None:
                        progress.update(len(vectors))
        return result

    def compute_in(self, precision: Precision) -> None:
        """Embed in another precision from now on; an encoder in fewer bits cannot be saved.

        In `bf16` both towers compute in bfloat16. In `int8` the text tower multiplies 8-bit integers, and the image
        tower stays in float32.
        """
        parts = text_parts(self.model)
        if precision == "bf16":
            self.autocast = torch.bfloat16
            round_weights(parts)
        elif precision == "int8":
            quantise(parts)
            try:
                self.embed_texts(["a dog", "two cats on a couch"])
            except (AttributeError, RuntimeError, TypeError) as error:
                raise InputError(
                    f"the text tower of '{self.sidecar.name}' cannot compute in int8 ({str(error).splitlines()[0]}): "
                    "choose bf16 or fp32"
                ) from None

    def save_text_files(self, folder: Path) -> None:
        """Write the Hugging Face files of the text side, if it has any."""
        self.tokenizer.save(folder)
        text = getattr(self.model, "text", None)
        config = getattr(getattr(text, "language", text), "config", None)
        if config is not None:
            config.save_pretrained(folder)


def _fetched_rows(features: Callable[[Rows], Tensor], order: Rows, batch: slice) -> Vectors:
    return fetched(features(order[batch]))


def unit_rows(features: Vectors) -> tuple[Vectors, Vectors]:
    """Rows `[rows, dim]` scaled to length one, and the lengths they had, `[rows]`."""
    norms = np.linalg.norm(features, axis=1)
    return features / np.maximum(norms, 1e-12)[:, np.newaxis], norms


def _check_vocabulary(model: Any, tokenizer: Tokenizer, name: str) -> None:
    """Refuse a tokenizer of another vocabulary than the text tower has embeddings for."""
    rows = getattr(getattr(model, "text", model), "vocab_size", 0)
    if isinstance(tokenizer, HuggingFaceTokenizer):
        highest, least = tokenizer.highest_id(), _LEAST_SHARE * rows
    else:
        # CLIP's end token has the highest id; open_clip's coca_base has more embeddings than it has ids.
        highest, least = int(tokenizer([""]).max()), 0
    if rows and not least <= highest + 1 <= rows:
        raise InputError(
            f"the tokenizer of '{name}' has ids up to {highest}, its text tower has {rows} embeddings: correct the "
            "tokenizer or vocab_size"
        )
