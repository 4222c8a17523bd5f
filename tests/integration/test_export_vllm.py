"""vLLM's pooling runner serves an export, and its vectors are the encoder's."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from components.captions.generating.engines.vllm import serve
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.registry.export import write_checked
from components.registry.formats import find_format
from tests.conftest import TINY
from tests.integration.vllm_server import require_vllm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
TEXTS = ["a dog", "two cats on a sofa", "It's 2 O'clock!", "a child on a couch, with no dog"]
# Heads of a width that vLLM's processor build knows.
_CHANGES = {"vision_cfg": {"width": 64, "head_width": 64}, "text_cfg": {"width": 64, "heads": 1, "context_length": 77}}


def test_vllm_serves_the_exported_folder(tmp_path: Path) -> None:
    python = require_vllm()
    torch.manual_seed(3)
    # As in CLIP, vectors are as wide as the text tower; vLLM takes no narrower ones.
    config = TINY | {"embed_dim": 64} | {tower: TINY[tower] | changes for tower, changes in _CHANGES.items()}
    encoder, folder = Encoder.create("small", "small", config, "test"), tmp_path / "exported"
    write_checked(encoder, find_format("vllm"), folder)
    options = {"model": folder, "runner": "pooling", "served-model-name": "text-encoder", "dtype": "float32"}
    flags = ["--enforce-eager", *(f"--{name}={value}" for name, value in options.items())]
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with serve(python, flags, environment, tmp_path / "log", 1200) as running:
        headers = {"Authorization": f"Bearer {running.key}"}
        asked = {"model": "text-encoder", "input": TEXTS}
        answer = httpx.post(f"{running.url}/embeddings", json=asked, headers=headers, timeout=300).raise_for_status()
    found = np.array([one["embedding"] for one in answer.json()["data"]], np.float32)
    np.testing.assert_allclose(unit_rows(found)[0], encoder.embed_texts(TEXTS), atol=1e-4)
