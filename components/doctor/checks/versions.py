"""Checks that Python and packages have the versions that cliptune asks for."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from components.doctor.check import Check, Finding, Surroundings, fail, ok


def _examine(_around: Surroundings) -> Finding:
    try:
        wanted = [Requirement(line) for line in requires("cliptune") or []]
    except PackageNotFoundError:
        return fail("cliptune is not installed as a package", "run `make .venv/.ready`, or `pip install -e .`")
    wrong = [
        fault for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""}) if (fault := _fault(one))
    ]
    if wrong:
        return fail("; ".join(wrong), "run `make .venv/.ready` to install what requirements/main.txt holds")
    if shutil.which("git") is None:
        return fail("git is not installed", "install git: commits are part of every run's record")
    return ok(
        f"Python {platform.python_version()}, cliptune {version('cliptune')}, torch {version('torch')}, "
        f"Prefect {version('prefect')}, MLflow {version('mlflow')}, DVC {version('dvc')}"
    )


def _fault(wanted: Requirement) -> str:
    try:
        found = version(wanted.name)
    except PackageNotFoundError:
        return f"{wanted.name} is missing"
    fits = wanted.specifier.contains(found, prereleases=True)
    return "" if fits else f"{wanted.name} {found} is not {wanted.specifier}"


CHECK = Check("versions", 1, _examine)
