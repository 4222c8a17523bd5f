"""How fast a machine is: what the stages take by the row, and what language models and towers do in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import NonNegativeFloat, PositiveFloat, ValidationError

from components.core.errors import InputError
from components.core.settings import Block, explain_fault
from components.core.settings.yaml_text import explain_yaml, read_yaml

_MEASURED = Path(__file__).parent / "rates.yaml"


class PerRow(Block):
    """What a stage takes: at its start, and by the row."""

    start_s: NonNegativeFloat
    row_us: NonNegativeFloat
    memory_gb: NonNegativeFloat
    row_memory_bytes: NonNegativeFloat
    row_disk_bytes: NonNegativeFloat


class Tokens(Block):
    """What a language model reads and writes in a second, over all questions that are asked at once."""

    tokens_in_per_second: PositiveFloat
    tokens_out_per_second: PositiveFloat

    def seconds(self, tokens_in: float, tokens_out: float) -> float:
        """The time that so many tokens take."""
        return tokens_in / self.tokens_in_per_second + tokens_out / self.tokens_out_per_second


class Rates(Block):
    """The rates of one machine, or of a cluster."""

    machine: str
    stages: dict[str, PerRow]
    similarities_per_second: PositiveFloat
    embedded: Tokens
    server: Tokens | None = None
    trained_texts_per_second: PositiveFloat | None = None
    """Through the base's text tower, forward and backward; None to time the tower here."""
    embedded_images_per_second: PositiveFloat | None = None
    """Through the base's image tower, forward; None to time the tower here."""


def load_rates(given: Path | None = None) -> Rates:
    """The rates that come with this package, and those of the file `given` over them.

    Raises:
        InputError: the file is missing, is no YAML, or has an unknown key or a wrong value.
    """
    content = _read(_MEASURED)
    if given is not None:
        own = _read(given)
        content = content | own | {"stages": content["stages"] | own.get("stages", {})}
    try:
        return Rates.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{given or _MEASURED}: {explain_fault(error, Rates)}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): give a file of rates") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no valid YAML: {explain_yaml(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no keys: {_MEASURED} has those that it may hold")
    return content
