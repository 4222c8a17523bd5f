"""Write a language model, with its adapter merged, as a Hugging Face folder that vLLM and other servers can load.

python -m components.students.save_model --output models/student --adapter components/captions/assets/student
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from components.captions.local_model.language_model import load_language_model
from components.captions.local_model.weights import find_weights
from components.core.errors import run_command
from components.core.files import atomic_folder
from components.core.project import start


def save_model(output: Path, adapter: Path | None, dtype: torch.dtype, base: str | None = None) -> None:
    """Write weights (safetensors), configuration, tokenizer and chat template to the folder `output`.

    Raises:
        InputError: the base or the adapter is missing, or cannot be loaded.
    """
    loaded = load_language_model(adapter, dtype, base)
    model = _without_quantisation(loaded.model)
    # Where it was loaded from exists on this machine alone.
    model.config._name_or_path = ""
    with atomic_folder(output) as folder:
        model.save_pretrained(str(folder))
        loaded.tokenizer.save_pretrained(str(folder))
        # safetensors lets the owner alone read, and a server may run as somebody else.
        for path in folder.iterdir():
            path.chmod(0o644)


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


def main(
    output: Annotated[Path, typer.Option(help="The folder to write.")],
    adapter: Annotated[Path | None, typer.Option(help="A LoRA adapter to merge into the weights.")] = None,
    base: Annotated[str | None, typer.Option(help="A Hugging Face folder or name; SmolLM2 when not given.")] = None,
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="Type of the weights.")] = "float32",
) -> None:
    """Save a language model as a Hugging Face folder."""

    def command() -> None:
        save_model(output, adapter, getattr(torch, dtype), base)
        print(f"{output}: {find_weights(str(output)).label}")

    run_command(command)


if __name__ == "__main__":
    start(main)
