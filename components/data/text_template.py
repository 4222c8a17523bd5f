"""Captions made of columns: `title, brand, color`, or a template such as `{title} by {brand}, {color}`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from string import Formatter
from typing import Any

from components.core.system.errors import InputError


class TextTemplate:
    """The text of `prepare.text`.

    Raises:
        InputError: it names no column, or braces do not match.

    >>> TextTemplate("{title} by {brand}, {color}").of({"title": "Mug", "brand": None, "color": "red"})
    'Mug, red'
    >>> TextTemplate("title, brand").of({"title": "Mug", "brand": "Acme"})
    'Mug, Acme'
    """

    def __init__(self, text: str) -> None:
        listed = [name.strip() for name in text.split(",")]
        wanted = text if "{" in text or "}" in text else ", ".join(f"{{{name}}}" for name in listed if name)
        try:
            parts = list(Formatter().parse(wanted))
        except ValueError as error:
            raise InputError(
                f"prepare.text '{text}' is not a template ({error}): write it as '{{title}}, {{brand}}'"
            ) from None
        self._parts = [(before, name.strip() if name is not None else None) for before, name, *_ in parts]
        self.columns = tuple(dict.fromkeys(name for _, name in self._parts if name))
        if not self.columns:
            raise InputError(
                f"prepare.text '{text}' names no column: write it as 'title, brand' or '{{title}}, {{brand}}'"
            )

    def of(self, row: Mapping[str, Any]) -> str:
        """The caption of a row; a missing value is left out with the words before it."""
        made = ""
        for before, name in self._parts:
            value = "" if name is None else _shown(row.get(name))
            if value or name is None:
                made += before + value
        return " ".join(made.split()).strip(" ,;-–|")


def _shown(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        value = int(value) if value.is_integer() else value
    elif value is None or isinstance(value, float | dict | list):
        return ""
    return " ".join(str(value).split())
