"""The rates of a machine: how long rows, tokens, texts and images take (`rates.yaml`, or a file of the user's own)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import NonNegativeFloat, PositiveFloat, ValidationError

from components.core.settings import Block, explain_fault
from components.core.settings.yaml_text import explain_yaml, read_yaml
from components.core.system.errors import InputError

_MEASURED = Path(__file__).parent / "rates.yaml"


class PerRow(Block):
    """Cost of a stage: at its start, and per row."""

    start_s: NonNegativeFloat
    row_us: NonNegativeFloat
    memory_gb: NonNegativeFloat
    row_memory_bytes: NonNegativeFloat
    row_disk_bytes: NonNegativeFloat


class Tokens(Block):
    """Throughput of a language model over all concurrent questions."""

    tokens_in_per_second: PositiveFloat
    tokens_out_per_second: PositiveFloat

    def seconds(self, tokens_in: float, tokens_out: float) -> float:
        """The time for these tokens."""
        return tokens_in / self.tokens_in_per_second + tokens_out / self.tokens_out_per_second


class Rates(Block):
    """The rates of one machine, or of a cluster."""

    machine: str
    stages: dict[str, PerRow]
    similarities_per_second: PositiveFloat
    local: Tokens
    server: Tokens | None = None
    trained_texts_per_second: PositiveFloat
    """Through ViT-B/32's text tower, forward and backward; other towers in proportion to their parameters."""
    embedded_texts_per_second: PositiveFloat
    """Through ViT-B/32's text tower, forward in float32; other towers in proportion to their parameters."""
    embedded_images_per_second: PositiveFloat
    """Through ViT-B/32's image tower, forward; other towers in proportion to their operations."""
    layer_outputs_per_second: PositiveFloat
    """Numbers that the layers of an image tower write, forward."""
    trained_text_us: NonNegativeFloat
    embedded_image_us: NonNegativeFloat
    """Of every text and image besides, whatever the tower."""
    language_model_load_s: NonNegativeFloat
    """Time until engine `local` can answer."""
    language_tower_load_s: NonNegativeFloat
    """Time until a text tower that is a language model can compute."""
    text_checks_load_s: NonNegativeFloat
    """Time until `validate` can check texts: word lists and sentence encoder."""


def load_rates(given: Path | None = None) -> Rates:
    """The rates of this package, overridden by those of the file `given`."""
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
        raise InputError(f"{path} is not valid YAML: {explain_yaml(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} has no keys: see {_MEASURED} for those it may have")
    return content
