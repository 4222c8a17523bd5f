"""Joint: a weighted sum of the losses of several methods over one batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
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

    @cached_property
    def members(self) -> dict[str, _Member]:
        """The parts with their methods."""
        return _members(self, "joint")

    @property
    def builder(self) -> _Member | None:
        """The part that builds the text tower; None if all train the base's."""
        own = (part for part in self.members.values() if part.method.build_encoder is not Method.build_encoder)
        return next(own, None)


@dataclass(frozen=True)
class _Member:
    weight: float
    method: Method
    hyper: Any


def _members(joint: JointSettings, entry: str) -> dict[str, _Member]:
    """Raises `InputError` with the key `methods.<entry>.parts...` for an unknown method or key, or without parts."""
    where = f"methods.{entry}.parts"
    if not joint.parts:
        raise InputError(f"params.yaml: key '{where}' is empty: name at least one method")
    members, builders = {}, list[str]()
    same_loss = {"contrastive_loss": joint.contrastive_loss}
    for name, part in joint.parts.items():
        with prefixed_errors(f"params.yaml: key '{where}'"):
            method = find_method(name)
        with prefixed_errors(f"params.yaml: key '{where}.{name}'"):
            builders += [name] if method.build_encoder is not Method.build_encoder else []
            if len(builders) > 1:
                raise InputError(f"'{builders[0]}' builds the text tower already: remove one")
            if method.augment is not None:
                raise InputError("it perturbs the shared captions: remove it")
        given: dict[str, Any] = dict(part)
        weight = given.pop("weight", 1.0)
        for shared in {common.name for common in fields(Optimisation)} & given.keys():
            key = f"{where}.{name}.{shared}"
            raise InputError(f"params.yaml: key '{key}' is common to all parts: move it to 'methods.{entry}'")
        members[name] = _Member(weight, method, method.settings(given | same_loss, f"{entry}.parts.{name}"))
    return members


class Joint(Method):
    """A method whose settings include those of other methods."""

    def settings(self, given: Mapping[str, Any], entry: str | None = None) -> Any:
        """Like `Method.settings`, with checks of the parts' keys."""
        hyper = super().settings(given, entry)
        _members(hyper, entry or self.name)
        return hyper


def _union(sets: Iterable[Iterable[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _trains(hyper: JointSettings) -> tuple[str, ...]:
    if (builder := hyper.builder) is not None:
        return builder.method.trainable(builder.hyper)
    return tuple(sorted(_union(part.method.trainable(part.hyper) for part in hyper.members.values())))


def _extra(encoder: Encoder, hyper: JointSettings) -> nn.Module:
    from torch import nn

    return nn.ModuleDict({name: member.method.extra(encoder, member.hyper) for name, member in hyper.members.items()})


def _losses(features: Features, hyper: JointSettings) -> Losses:
    losses = {}
    for name, member in hyper.members.items():
        seen = replace(features, extra=features.extra[name])  # type: ignore[index]
        for term, loss in member.method.losses(seen, member.hyper).items():
            losses[f"{name}/{term}"] = member.weight * loss
    return losses


def _visits(hyper: JointSettings) -> Visits:
    """`images` if any part needs it, because all parts share the batch.

    A row has the texts of a caption and one comparison of its image, so an epoch over all comparisons would repeat
    captions, several of one image in a batch.
    """
    parts: set[Visits] = {part.method.epoch_unit(part.hyper) for part in hyper.members.values()}
    return "images" if "images" in parts else "pairs" if "pairs" in parts else "rows"


def _neighbours(hyper: JointSettings) -> Neighbours:
    """The neighbours of the parts that read one; a batch has one for each row."""
    wanted = {
        part.method.neighbours(part.hyper): part.method.name
        for part in hyper.members.values()
        if any(column.startswith(NEIGHBOUR) for column in part.method.columns(part.hyper))
    }
    if len(wanted) > 1:
        raise InputError(
            f"params.yaml: joint's parts {' and '.join(sorted(wanted.values()))} need different similar images, "
            "and a row has only one: set distractor_data to null and protocol to drawn"
        )
    return next(iter(wanted), Neighbours())


def _files(hyper: JointSettings) -> dict[str, Path]:
    """The files of all parts; two parts may each have a language model."""
    return {
        f"{name}.{key}": path
        for name, part in hyper.members.items()
        for key, path in part.method.files(part.hyper).items()
    }


METHOD = Joint(
    name="joint",
    citation="ours; the losses are those of the methods in `parts`",
    hyper=JointSettings,
    columns=lambda hyper: _union(part.method.columns(part.hyper) for part in hyper.members.values()),
    losses=_losses,
    contrasts=lambda hyper: any(part.method.contrasts(part.hyper) for part in hyper.members.values()),
    weighted=lambda hyper: all(part.method.weighted(part.hyper) for part in hyper.members.values()),
    rows=lambda hyper: _union(part.method.rows(part.hyper) for part in hyper.members.values()),
    epoch_unit=_visits,
    neighbours=_neighbours,
    files=_files,
    column_mixture=lambda hyper: {
        k: v for part in hyper.members.values() for k, v in part.method.column_mixture(part.hyper).items()
    },
    trainable=_trains,
    fresh_params=lambda hyper: hyper.builder.method.fresh_params(hyper.builder.hyper) if hyper.builder else (),
    build_encoder=lambda base, hyper: (
        hyper.builder.method.build_encoder(base, hyper.builder.hyper) if hyper.builder else base
    ),
    extra=_extra,
    reads_base=lambda hyper: (
        hyper.retention > 0 or any(part.method.reads_base(part.hyper) for part in hyper.members.values())
    ),
    warnings=lambda hyper: [text for part in hyper.members.values() for text in part.method.warnings(part.hyper)],
)
