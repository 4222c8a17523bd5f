"""The text tower in float32 as an ONNX graph with its tokenizer, for onnxruntime in any language.

The graph maps token ids `[texts, length]` to unit vectors `[texts, dim]`.
"""

from __future__ import annotations

import logging
import re
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import open_clip
import torch
from more_itertools import chunked
from PIL import Image
from torch import Tensor, nn

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.adapter.text_tower import encode_tokens
from components.encoders.adapter.tokens import HuggingFaceTokenizer
from components.registry.formats import ExportedVectors, Format, huggingface

GRAPH, TOKENIZER = "text.onnx", "tokenizer.json"
USAGE = (
    "import numpy as np, onnxruntime, tokenizers\n"
    'tokenizer = tokenizers.Tokenizer.from_file("{folder}/tokenizer.json")\n'
    "# A special token in a text is read as plain letters.\n"
    "tokenizer.encode_special_tokens = True\n"
    'session = onnxruntime.InferenceSession("{folder}/text.onnx")\n'
    'ids = np.array([text.ids for text in tokenizer.encode_batch(["a child on a couch"])], dtype=np.int64)\n'
    'vectors = session.run(None, {{"input_ids": ids}})[0]'
)
_INPUT, _OUTPUT = "input_ids", "embeddings"
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_BATCH = 64


def refuse(encoder: Encoder) -> None:
    """Raise InputError if a package is missing, or the library `tokenizers` cannot read the tokenizer."""
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        raise InputError(f"ONNX needs the package {missing[0]}: run `make .venv/.ready`, which installs it")
    if isinstance(encoder.tokenizer, HuggingFaceTokenizer) and not encoder.tokenizer.is_fast:
        raise InputError(
            f"'{encoder.sidecar.name}' has a tokenizer without {TOKENIZER}, which onnxruntime needs: use "
            "`--format open_clip`"
        )


def write_graph(encoder: Encoder, path: Path) -> None:
    """Write the text tower in float32, for any number of texts of any length that it takes."""
    longest = encoder.tokenizer.context_length
    example = torch.from_numpy(encoder.tokenizer(["a dog", "two cats"]).astype("int64"))
    sizes: dict[int, Any] = {0: torch.export.Dim("texts", min=1)}
    if encoder.tokenizer.trims:
        sizes[1] = torch.export.Dim("length", min=2, max=longest)
    with torch.no_grad(), _quiet():
        program: Any = torch.onnx.export(
            _TextSide(encoder.model).eval(),
            (example,),
            input_names=[_INPUT],
            output_names=[_OUTPUT],
            dynamic_shapes=(sizes,),
            dynamo=True,
            verbose=False,
        )
        program.save(str(path))


def round_graph(path: Path, target: Path) -> None:
    """Write the graph at `path` with 8-bit weights, quantised per column."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        # Seven of the eight bits: AVX2 adds pairs of products in 16 bits, where eight bits overflow.
        quantize_dynamic(str(path), str(target), weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def write_tokenizer(encoder: Encoder, path: Path) -> None:
    """Write the tokenizer with its padding and truncation to one file."""
    from tokenizers import Tokenizer

    padding: dict[str, Any] = {"pad_id": 0, "pad_token": "!"}
    with TemporaryDirectory() as temporary:
        if isinstance(encoder.tokenizer, HuggingFaceTokenizer):
            encoder.tokenizer.save(Path(temporary))
            padding = {"pad_id": encoder.tokenizer.pad_id, "pad_token": encoder.tokenizer.pad_token}
            padding["direction"] = encoder.tokenizer.padding_side
        else:
            byte_pairs = open_clip.SimpleTokenizer(context_length=encoder.sidecar.context_length)
            huggingface.clip_tokenizer(byte_pairs, encoder.sidecar.context_length).save_pretrained(temporary)
        tokenizer = Tokenizer.from_file(str(Path(temporary, TOKENIZER)))
    if getattr(encoder.tokenizer, "clean", "") == "canonicalize":
        tokenizer.normalizer = _canonicalizing(tokenizer.normalizer)
    tokenizer.enable_truncation(encoder.tokenizer.context_length)
    tokenizer.enable_padding(**padding, length=None if encoder.tokenizer.trims else encoder.tokenizer.context_length)
    tokenizer.save(str(path))


def _canonicalizing(after: Any) -> Any:
    """open_clip's `canonicalize_text` of SigLIP's texts: no punctuation, lower case, single spaces; then `after`."""
    from tokenizers import Regex, normalizers

    marks = Regex(f"[{re.escape(string.punctuation)}]")
    steps = [normalizers.Replace("_", " "), normalizers.Replace(marks, ""), normalizers.Lowercase()]
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([*steps, *([after] if after is not None else [])])


def _read(folder: Path, texts: Sequence[str], _images: Sequence[Image.Image]) -> ExportedVectors:
    """Vectors of texts by onnxruntime."""
    return ExportedVectors(GraphEncoder(folder).embed_texts(texts))


class GraphEncoder:
    """A text encoder that runs an exported folder."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.encode_special_tokens = True
        self._session = onnxruntime.InferenceSession(str(folder / GRAPH), providers=["CPUExecutionProvider"])

    def embed_texts(self, texts: Sequence[str], batch_size: int = _BATCH, title: str | None = None) -> Vectors:
        """Unit vectors `[texts, dim]` in the order of `texts`."""
        del title
        order = np.argsort([len(text) for text in texts], kind="stable")
        parts = []
        for rows in chunked(order, batch_size):
            ids = [text.ids for text in self._tokenizer.encode_batch([texts[row] for row in rows])]
            parts.append(self._session.run(None, {_INPUT: np.array(ids, dtype=np.int64)})[0])
        vectors: Vectors = np.concatenate(parts)[np.argsort(order)]
        return vectors


class _TextSide(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        return encode_tokens(self.model, input_ids)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the advice that the exporters log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _write(encoder: Encoder, folder: Path) -> None:
    write_graph(encoder, folder / GRAPH)
    write_tokenizer(encoder, folder / TOKENIZER)


def _write_rounded(encoder: Encoder, folder: Path) -> None:
    with TemporaryDirectory() as temporary:
        write_graph(encoder, Path(temporary, GRAPH))
        round_graph(Path(temporary, GRAPH), folder / GRAPH)
    write_tokenizer(encoder, folder / TOKENIZER)


FORMAT = Format(name="onnx", refuse=refuse, write=_write, read=_read, usage=USAGE, notes=huggingface.FORMAT.notes)
INT8 = replace(FORMAT, name="onnx_int8", write=_write_rounded, rounded=True)
