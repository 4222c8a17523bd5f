"""Joint: a weighted sum of the losses of several methods over one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, NonNegativeInt, PositiveInt, with_config
from typing_extensions import TypedDict

from components.core.system.errors import InputError, prefixed_errors
from components.core.tables import NEIGHBOUR
from components.training.methods.contract.losses import Features, Losses
from components.training.methods.contract.method import Method, Neighbours, NotNegative, Optimisation, Positive, Visits
from components.training.methods.registry import find_method

if TYPE_CHECKING:
    from torch import nn

    from components.encoders.adapter.encoder import Encoder


@with_config(ConfigDict(extra="allow"))
class JointPart(TypedDict, total=False):
    """A part's weight (default 1) and the hyper-parameters of its method."""

    weight: Positive


def _default_parts() -> dict[str, JointPart]:
    return {
        "paraclip": {"weight": 1.0},
        # ParaCLIP's first paraphrase serves both, so that a row needs one table less.
        "semclip": {"weight": 1.0, "contrastive_weight": 0.0, "paraphrase": "paraphrase_1"},  # type: ignore[typeddict-unknown-key]
        "pc_clip": {"weight": 1.0},
    }


@dataclass(frozen=True, kw_only=True)
class JointSettings(Optimisation):
    """Our values; no paper has this method.

    Attributes:
        parts: method name -> its weight and hyper-parameters. The optimisation is common to all parts; a parameter is
            trained if any part trains it. One part may build a text tower (`lm_text_tower`): all losses train it, and
            that part selects its trained parameters.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 50
    parts: dict[str, JointPart] = field(default_factory=_default_parts)


def _of_parts(name: str, combined: Callable[[Iterable[Any]], Any]) -> Any:
    """A property that combines those of the parts."""
    return property(lambda joint: combined(getattr(part, name) for part in joint.parts.values()))


def _union(sets: Iterable[Iterable[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


class Joint(Method[JointSettings]):
    """The sum of all parts' losses, each times its weight.

    Attributes:
        parts: method name -> the method with its settings.
    """

    name = "joint"
    citation = "ours; the losses are those of the methods in `parts`"
    settings_class = JointSettings
    columns = _of_parts("columns", _union)
    rows = _of_parts("rows", _union)
    contrasts = _of_parts("contrasts", any)
    weighted = _of_parts("weighted", all)
    builds_tower = _of_parts("builds_tower", any)

    def __init__(self, settings: JointSettings, entry: str = "") -> None:
        super().__init__(settings, entry)
        self.parts = _parts(settings, entry or self.name)
        self._builder = next((part for part in self.parts.values() if part.builds_tower), None)

    def losses(self, features: Features) -> Losses:
        losses = {}
        for name, part in self.parts.items():
            seen = replace(features, extra=features.extra[name])  # type: ignore[index]
            for term, loss in part.losses(seen).items():
                losses[f"{name}/{term}"] = self.settings.parts[name].get("weight", 1.0) * loss
        return losses

    @property
    def trainable(self) -> tuple[str, ...]:
        if self._builder is not None:
            return self._builder.trainable
        return tuple(sorted(_union(part.trainable for part in self.parts.values())))

    def extra(self, encoder: Encoder) -> nn.Module:
        from torch import nn

        return nn.ModuleDict({name: part.extra(encoder) for name, part in self.parts.items()})

    def build_encoder(self, base: Encoder) -> Encoder:
        return self._builder.build_encoder(base) if self._builder else base

    @property
    def epoch_unit(self) -> Visits:
        """`images` if any part needs it, because all parts share the batch.

        A row has the texts of a caption and one comparison of its image, so an epoch over all comparisons would repeat
        captions, several of one image in a batch.
        """
        units = {part.epoch_unit for part in self.parts.values()}
        return "images" if "images" in units else "pairs" if "pairs" in units else "rows"

    @property
    def neighbours(self) -> Neighbours:
        """The neighbours of the parts that read one; a batch has one for each row."""
        wanted = {
            part.neighbours: part.name
            for part in self.parts.values()
            if any(column.startswith(NEIGHBOUR) for column in part.columns)
        }
        if len(wanted) > 1:
            raise InputError(
                f"params.yaml: joint's parts {' and '.join(sorted(wanted.values()))} need different similar images, "
                "and a row has only one: set distractor_data to null and protocol to drawn"
            )
        return next(iter(wanted), Neighbours())

    @property
    def column_mixture(self) -> dict[str, Mapping[str, float]]:
        return {column: shares for part in self.parts.values() for column, shares in part.column_mixture.items()}

    @property
    def reads_base(self) -> bool:
        return super().reads_base or any(part.reads_base for part in self.parts.values())

    def files(self) -> dict[str, Path]:
        """The files of all parts; two parts may each have a language model."""
        return {f"{name}.{key}": path for name, part in self.parts.items() for key, path in part.files().items()}

    def warnings(self) -> list[str]:
        return [text for part in self.parts.values() for text in part.warnings()]


def _parts(joint: JointSettings, entry: str) -> dict[str, Method[Optimisation]]:
    """The methods of `parts`; errors have the key `methods.<entry>.parts...`."""
    where = f"methods.{entry}.parts"
    if not joint.parts:
        raise InputError(f"params.yaml: key '{where}' is empty: name at least one method")
    parts: dict[str, Method[Optimisation]] = {}
    for name, given in joint.parts.items():
        own = {key: value for key, value in given.items() if key != "weight"}
        for shared in {common.name for common in fields(Optimisation)} & own.keys():
            key = f"{where}.{name}.{shared}"
            raise InputError(f"params.yaml: key '{key}' is common to all parts: move it to 'methods.{entry}'")
        with prefixed_errors(f"params.yaml: key '{where}'"):
            method = find_method(name)
        part = method.read(own, f"{entry}.parts.{name}")
        with prefixed_errors(f"params.yaml: key '{where}.{name}'"):
            if part.builds_tower and (builder := next((one for one in parts if parts[one].builds_tower), None)):
                raise InputError(f"'{builder}' builds the text tower already: remove one")
            if part.augment is not None:
                raise InputError("it perturbs the shared captions: remove it")
        parts[name] = part
    return parts


METHOD = Joint
