"""What a fine-tuning method declares."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from components.errors import InputError
from components.training.optimisation import Optimisation

TEXT_TOWER = (
    r"^token_embedding\.",
    r"^positional_embedding$",
    r"^transformer\.",
    r"^ln_final\.",
    r"^text_projection",
    r"^logit_scale$",
)
"""Names of the parameters of an open_clip text tower, logit scale included."""


@dataclass(frozen=True)
class Method:
    """One way to fine-tune an encoder.

    Attributes:
        name: the method's name, its file and its key in params.yaml.
        citation: the paper.
        columns: what of a training row it needs: `image`, `caption`, `paraphrase_1`, `paraphrase_2`.
        trains: patterns of the parameter names that it trains; everything else is frozen.
        hyper: its hyper-parameters, a frozen dataclass whose defaults are the paper's.
        losses: named loss terms from unit features `[batch, dim]` by column, the logit scale (already
            exponentiated) and the hyper-parameters; the loop minimises their sum.
    """

    name: str
    citation: str
    columns: Callable[[Any], frozenset[str]]
    trains: tuple[str, ...]
    hyper: type[Optimisation]
    losses: Callable[[Mapping[str, Tensor], Tensor, Any], dict[str, Tensor]] = field(repr=False)

    def settings(self, given: Mapping[str, Any]) -> Any:
        """The hyper-parameters with the values of params.yaml over the paper's.

        Raises:
            InputError: an unknown key or a value of the wrong type.
        """
        known = [entry.name for entry in fields(self.hyper)]
        for key in given:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
                raise InputError(f"params.yaml: unknown key 'methods.{self.name}.{key}': {hint}")
        try:
            return TypeAdapter(self.hyper).validate_python(dict(given))
        except ValidationError as error:
            fault = error.errors()[0]
            key = ".".join(str(part) for part in fault["loc"])
            raise InputError(f"params.yaml: key 'methods.{self.name}.{key}': {fault['msg']}") from None

    def freeze(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Freeze everything but what the method trains; returns those parameters by name.

        Raises:
            InputError: a pattern matches no parameter of this model, so the method does not fit it.
        """
        trained = {}
        matched: set[str] = set()
        for name, parameter in model.named_parameters():
            hits = [pattern for pattern in self.trains if re.search(pattern, name)]
            matched.update(hits)
            parameter.requires_grad_(bool(hits))
            if hits:
                trained[name] = parameter
        unmatched = [pattern for pattern in self.trains if pattern not in matched]
        if unmatched:
            raise InputError(f"method '{self.name}' trains '{unmatched[0]}', which this encoder does not have")
        return trained
