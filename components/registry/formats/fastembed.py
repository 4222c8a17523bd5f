"""A folder that Qdrant's fastembed loads as a custom model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.registry.formats import ExportedVectors, Format, huggingface, onnx

_CONFIG = "tokenizer_config.json"


def _refuse(encoder: Encoder) -> None:
    """Raise InputError if a package is missing, or the tower reads padding, which fastembed shortens."""
    onnx.refuse(encoder)
    name = encoder.sidecar.name
    if not encoder.tokenizer.trims:
        raise InputError(f"'{name}' reads the padding of its texts, which fastembed shortens: use `--format onnx`")
    if find_spec("fastembed") is None:
        raise InputError("--format fastembed needs the package: pip install fastembed")


def _write(encoder: Encoder, folder: Path) -> None:
    onnx.write_graph(encoder, folder / onnx.GRAPH)
    pad = onnx.write_tokenizer(encoder, folder / onnx.TOKENIZER)
    config = {"model_max_length": encoder.tokenizer.context_length, "pad_token": pad, "dim": encoder.sidecar.embed_dim}
    (folder / _CONFIG).write_text(json.dumps(config), encoding="utf-8")


def _read(folder: Path, texts: Sequence[str], _images: Sequence[Image.Image]) -> ExportedVectors:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    known = {model["model"] for model in TextEmbedding.list_supported_models()}
    if (name := str(folder)) not in known:
        dim = json.loads((folder / _CONFIG).read_text("utf-8"))["dim"]
        source = ModelSource(hf="local/folder")
        TextEmbedding.add_custom_model(
            name, pooling=PoolingType.DISABLED, normalization=True, sources=source, dim=dim, model_file=onnx.GRAPH
        )
    model = TextEmbedding(name, specific_model_path=str(folder))
    return ExportedVectors(np.stack(list(model.embed(list(texts)))))


FORMAT = Format(
    name="fastembed",
    refuse=_refuse,
    write=_write,
    read=_read,
    usage=(
        "import json\n"
        "from fastembed import TextEmbedding\n"
        "from fastembed.common.model_description import ModelSource, PoolingType\n"
        'dim = json.load(open("{folder}/tokenizer_config.json"))["dim"]\n'
        "TextEmbedding.add_custom_model(\n"
        '    "text-encoder", pooling=PoolingType.DISABLED, normalization=True, dim=dim, model_file="text.onnx",\n'
        '    sources=ModelSource(hf="local/folder"),\n'
        ")\n"
        'model = TextEmbedding("text-encoder", specific_model_path="{folder}")\n'
        'vectors = list(model.embed(["a child on a couch"]))'
    ),
    notes=(
        *huggingface.FORMAT.notes,
        "fastembed reads a special token in a query, such as <|startoftext|>, as that token, and not as text.",
    ),
)
