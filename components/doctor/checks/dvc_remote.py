"""Checks that the DVC remote can be reached with the credentials that DVC would use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.core.errors import InputError
from components.core.storage import S3
from components.doctor.check import Check, Finding, Surroundings, fail, not_used, ok

_KEYS = {
    "endpointurl": "endpoint",
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "region": "region",
    "profile": "profile",
}
"""DVC's names -> ours."""


def _examine(around: Surroundings) -> Finding:
    from dvc.config import Config, ConfigError  # type: ignore[import-untyped]

    dvc = around.folder / ".dvc"
    if not dvc.is_dir():
        raise InputError(f"{dvc} is missing: run the command in the project's folder")
    try:
        config: Mapping[str, Any] = Config(str(dvc))
    except ConfigError as error:
        raise InputError(f"{dvc / 'config'} cannot be read ({error}): correct it") from None
    name = config.get("core", {}).get("remote")
    if not name:
        return not_used("no default remote; `dvc remote add --default <name> s3://bucket/dvc` makes one")
    remote = config.get("remote", {}).get(name)
    if remote is None:
        return fail(f"remote '{name}' is not described", f"describe it: `dvc remote add {name} s3://bucket/dvc`")
    return _reach(name, remote)


def _reach(name: str, remote: Mapping[str, Any]) -> Finding:
    url = str(remote["url"])
    if url.startswith("s3://"):
        options = {ours: str(remote[theirs]) for theirs, ours in _KEYS.items() if remote.get(theirs)}
        S3(hurry=True, **options).check_bucket(url)
        return ok(f"{name}: {url}")
    if "://" in url:
        return not_used(f"{name}: {url} is neither a folder nor S3; `dvc status --cloud` asks it")
    path = Path(url)
    if path.is_dir() and os.access(path, os.W_OK):
        return ok(f"{name}: {url}")
    return fail(f"{name}: {url} is no folder one may write to", "make it, mount it, or correct its rights")


CHECK = Check("DVC remote", 6, _examine)
