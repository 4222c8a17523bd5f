"""A folder that vLLM's pooling runner serves: `vllm serve exported --runner pooling`."""

from __future__ import annotations

from dataclasses import replace

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.registry.formats import huggingface


def _refuse(encoder: Encoder) -> None:
    """Raise InputError as `huggingface`, and for vectors that are shorter than the text tower is wide."""
    huggingface.refuse(encoder)
    width, dim = encoder.sidecar.architecture["text_cfg"]["width"], encoder.sidecar.embed_dim
    if dim < width:
        raise InputError(
            f"'{encoder.sidecar.name}' has vectors of {dim} numbers and a text tower {width} wide, which vLLM does not "
            "serve: use `--format huggingface`, or serve it with `cliptune serve`"
        )


FORMAT = replace(
    huggingface.FORMAT,
    name="vllm",
    refuse=_refuse,
    usage=(
        "# vllm serve {folder} --runner pooling --served-model-name text-encoder\n"
        "from openai import OpenAI\n"
        'client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="-")\n'
        'vector = client.embeddings.create(model="text-encoder", input="a child on a couch").data[0].embedding'
    ),
)
