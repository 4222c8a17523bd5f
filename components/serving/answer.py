"""The vectors of a request, and how they go to the client."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from starlette.responses import Response

MODEL_HEADER = "x-cliptune-model"


@dataclass(frozen=True)
class Answer:
    """What one version of a model says of a request's texts.

    Attributes:
        model: the version, such as `text-encoder/3`.
        vectors: a unit vector `[dim]`, float32, for each text in the order given.
        tokens: how many tokens the text tower read of all texts.
    """

    model: str
    vectors: list[npt.NDArray[np.float32]]
    tokens: int

    def response(self, encoding_format: str) -> Response:
        """The answer in the shape of OpenAI's."""
        write = _as_base64 if encoding_format == "base64" else _as_numbers
        told = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": row, "embedding": write(vector)}
                for row, vector in enumerate(self.vectors)
            ],
            "model": self.model,
            "usage": {"prompt_tokens": self.tokens, "total_tokens": self.tokens},
        }
        content = orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, headers={MODEL_HEADER: self.model}, media_type="application/json")


def _as_base64(vector: npt.NDArray[np.float32]) -> str:
    """Its bytes as clients expect them, little-endian float32, on every machine."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _as_numbers(vector: npt.NDArray[np.float32]) -> Any:
    return np.ascontiguousarray(vector)
