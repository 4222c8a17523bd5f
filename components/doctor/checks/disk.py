"""Checks that there is room on the disk for what stages write."""

from __future__ import annotations

import shutil

from components.doctor.check import Check, Finding, Surroundings, fail, ok, warn

LEAST, GOOD = 1e9, 10e9
"""Bytes: the embedded world needs one gigabyte beside the packages; real data more than ten."""


def _examine(around: Surroundings) -> Finding:
    usage = shutil.disk_usage(around.folder)
    detail = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free"
    fix = "make room: `dvc gc --workspace` removes outputs that no stage has any longer"
    if usage.free < LEAST:
        return fail(detail, fix)
    return warn(detail, fix) if usage.free < GOOD else ok(detail)


CHECK = Check("disk space", 11, _examine)
