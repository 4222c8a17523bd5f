"""Replaces the folder `textual` of a model of Immich, in the layout of its machine-learning server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.registry.formats import ExportedVectors, Format, onnx

_CONFIG, _SIDE, _INPUT = "config.json", "textual", "text"


def _refuse(encoder: Encoder) -> None:
    """Raise InputError if a package is missing, or Immich cannot prepare this tower's texts."""
    onnx.refuse(encoder)
    if getattr(encoder.tokenizer, "padding_side", "right") != "right":
        raise InputError(
            f"'{encoder.sidecar.name}' pads texts on the left, Immich pads them on the right: use `--format onnx`"
        )


def _write(encoder: Encoder, folder: Path) -> None:
    side = folder / _SIDE
    side.mkdir()
    pad = onnx.write_tokenizer(encoder, side / onnx.TOKENIZER)
    (side / "tokenizer_config.json").write_text(json.dumps({"pad_token": pad}), encoding="utf-8")
    (folder / _CONFIG).write_text(json.dumps(encoder.sidecar.architecture, indent=2), encoding="utf-8")
    ids = encoder.tokenizer(["a dog"])
    example = torch.full((1, encoder.tokenizer.context_length), int(ids[0, -1]), dtype=torch.int32)
    example[0, : ids.shape[1]] = torch.from_numpy(ids[0].astype("int32"))
    onnx.save_graph(encoder, side / "model.onnx", example, _INPUT, "embeddings")


def _read(folder: Path, texts: Sequence[str], _images: Sequence[Image.Image]) -> ExportedVectors:
    """Vectors of texts by the calls of Immich's `OpenClipTextualEncoder` (its server is not a package)."""
    import onnxruntime
    from tokenizers import Tokenizer

    side, config = folder / _SIDE, json.loads((folder / _CONFIG).read_text("utf-8"))["text_cfg"]
    pad = json.loads((side / "tokenizer_config.json").read_text("utf-8"))["pad_token"]
    context = config.get("context_length", 77)
    tokenizer = Tokenizer.from_file(str(side / onnx.TOKENIZER))
    tokenizer.enable_padding(length=context, pad_token=pad, pad_id=tokenizer.token_to_id(pad))
    tokenizer.enable_truncation(max_length=context)
    session = onnxruntime.InferenceSession(str(side / "model.onnx"), providers=["CPUExecutionProvider"])
    ids = [np.array([tokenizer.encode(" ".join(text.split())).ids], dtype=np.int32) for text in texts]
    return ExportedVectors(np.concatenate([session.run(None, {_INPUT: one})[0] for one in ids]))


FORMAT = Format(
    name="immich",
    refuse=_refuse,
    write=_write,
    read=_read,
    usage=(
        "# Immich's cache of models: replace the folder `textual` of the model that embedded your pictures, such as\n"
        "# /cache/clip/ViT-B-32__openai/textual, and restart the machine-learning container.\n"
        'import shutil\nshutil.copytree("{folder}/textual", "/cache/clip/ViT-B-32__openai/textual", dirs_exist_ok=True)'
    ),
    notes=(
        "Immich reads a special token in a query, such as <|endoftext|>, as that token. Its image side stays as it is: "
        "the base must be the model that your Immich uses.",
    ),
)
