"""Styles and scripts that stand in pages as they are."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def asset(name: str) -> Markup:
    """A file of the templates' folder."""
    return Markup((TEMPLATES / name).read_text("utf-8"))
