"""Write a language model, with its adapter merged, as a Hugging Face folder that vLLM and other servers can load.

python -m components.captions.students.save_model --output models/student --adapter components/captions/assets/student
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from components.core.system.errors import reported
from components.core.system.project import start
from components.encoders.language_models.language_model import load_language_model, write_folder
from components.encoders.language_models.weights import find_weights


def save_model(output: Path, adapter: Path | None, dtype: torch.dtype, base: str | None = None) -> None:
    """Write weights (safetensors), configuration, tokenizer and chat template to the folder `output`."""
    loaded = load_language_model(adapter, dtype, base)
    write_folder(loaded.model, loaded.tokenizer, output)


@reported
def main(
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    adapter: Annotated[Path | None, typer.Option(help="LoRA adapter to merge into the weights.")] = None,
    base: Annotated[str | None, typer.Option(help="Hugging Face folder or name (default: SmolLM2).")] = None,
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="Type of the weights.")] = "float32",
) -> None:
    """Save a language model as a Hugging Face folder."""
    save_model(output, adapter, getattr(torch, dtype), base)
    print(f"{output}: {find_weights(str(output)).label}")


if __name__ == "__main__":
    start(main)
