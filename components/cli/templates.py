"""Renders the Jinja templates of infra/new."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def rendered(template: Path, **values: Any) -> str:
    """The text of a template with `values`; lines with blocks alone leave no empty line.

    A name that `values` lacks is an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template.name).render(values)
