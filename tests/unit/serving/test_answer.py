"""An answer has OpenAI's shape in both of its encodings."""

from __future__ import annotations

import base64
import json

import numpy as np

from components.serving.answer import Answer

VECTORS = [np.array([0.6, -0.8], np.float32), np.array([1 / 3, 2 / 3], np.float32)]


def test_numbers() -> None:
    response = Answer("text-encoder/3", VECTORS, 7).response("float")
    told = json.loads(bytes(response.body))
    assert told["object"] == "list"
    assert told["model"] == response.headers["x-cliptune-model"] == "text-encoder/3"
    assert told["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [(row["object"], row["index"]) for row in told["data"]] == [("embedding", 0), ("embedding", 1)]
    np.testing.assert_array_equal(np.array([row["embedding"] for row in told["data"]], np.float32), np.stack(VECTORS))


def test_base64() -> None:
    told = json.loads(bytes(Answer("m", VECTORS, 1).response("base64").body))
    read = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in told["data"]]
    np.testing.assert_array_equal(np.stack(read), np.stack(VECTORS))
