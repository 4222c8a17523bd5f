"""The text tower as ONNX in float32, for onnxruntime in any language."""

from __future__ import annotations

from pathlib import Path

from components.encoders.adapter.encoder import Encoder
from components.registry.formats import huggingface, onnx_graph
from components.registry.formats.format import Format


def _write(encoder: Encoder, folder: Path) -> None:
    onnx_graph.write_graph(encoder, folder / onnx_graph.GRAPH)
    onnx_graph.write_tokenizer(encoder, folder / onnx_graph.TOKENIZER)


FORMAT = Format(
    name="onnx",
    refuse=onnx_graph.refuse,
    write=_write,
    read=onnx_graph.read,
    usage=onnx_graph.USAGE,
    notes=huggingface.FORMAT.notes,
)
