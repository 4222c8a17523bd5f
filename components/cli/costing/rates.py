"""The rates of a machine: pictures, texts, questions and rows per second (`machines/`, or a file of the user's own)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import NonNegativeFloat, PositiveFloat, ValidationError

from components.core.settings import Block, explain_fault
from components.core.settings.block import explain_yaml, read_yaml
from components.core.system.errors import InputError

_SHIPPED = Path(__file__).parent / "machines"
TWO_CORES = "two_cores"

Unit = Literal["pictures", "trained_pictures", "texts", "trained_texts", "questions", "rows"]


class Rates(Block):
    """The rates of one machine, or of a cluster; a rate that was not measured is left out.

    Attributes:
        start_s: seconds until a stage can begin.
        per_second: unit -> its rates. Pictures and texts have one for each encoder or language model, questions for
            each engine, rows for each stage. `trained_` is forward and backward.
    """

    machine: str
    start_s: NonNegativeFloat = 0.0
    per_second: dict[Unit, dict[str, PositiveFloat]]


def load_rates(given: str = TWO_CORES) -> Rates:
    """The rates of a machine of this package, such as `h200`, or of a file."""
    shipped = _SHIPPED / f"{given}.yaml"
    path = shipped if shipped.is_file() else Path(given)
    try:
        return Rates.model_validate(_read(path))
    except ValidationError as error:
        raise InputError(f"{path}: {explain_fault(error, Rates)}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(file.stem for file in _SHIPPED.glob("*.yaml")))
        raise InputError(f"rates '{path}' cannot be read ({error}): give a YAML file, or one of {known}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} has no keys: see {_SHIPPED / TWO_CORES}.yaml for those it may have")
    return content
