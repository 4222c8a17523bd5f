"""Writes a language model as a Hugging Face folder, which transformers, vLLM and other servers load."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from components.core.files import atomic_folder


def write_folder(model: Any, tokenizer: Any, output: Path) -> None:
    """Write weights (safetensors), configuration, tokenizer and chat template to the folder `output`, atomically."""
    model = _without_quantisation(model)
    # Where it was loaded from exists on this machine alone.
    model.config._name_or_path = ""
    with atomic_folder(output) as folder:
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))


def _without_quantisation(model: Any) -> Any:
    """The same weights in a model that does not remember having been unpacked, which transformers refuses to save."""
    if getattr(model.config, "quantization_config", None) is None:
        return model
    from transformers import AutoModelForCausalLM

    config = deepcopy(model.config)
    del config.quantization_config
    with torch.device("meta"):
        fresh = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    fresh.load_state_dict(model.state_dict(), assign=True)
    fresh.tie_weights()
    fresh.generation_config = model.generation_config
    return fresh
