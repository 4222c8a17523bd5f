"""Checks of this machine: params.yaml, GPU and disk space."""

from __future__ import annotations

import shutil

from components.cli.doctor.check import CheckResult, Installation, fail, not_used, ok, warn
from components.core.system.checking import check_settings
from components.core.system.errors import InputError

_LEAST_BYTES, _GOOD_BYTES = 1e9, 10e9
"""The demo needs one gigabyte besides the packages; real data more than ten."""


def check_params(installation: Installation) -> CheckResult:
    """All keys and names of params.yaml are known."""
    settings = installation.loaded
    if settings is None:
        raise InputError(installation.fault)
    check_settings(settings)
    return ok(
        f"dataset '{settings.dataset.name}', {len(settings.methods)} methods, {len(settings.compare_encoders)} encoders"
    )


def check_gpu(installation: Installation) -> CheckResult:
    """GPUs and driver fit torch, `device` and `train`."""
    import torch

    settings = installation.loaded
    if shutil.which("nvidia-smi") is None:
        if settings is not None and settings.device.startswith("cuda"):
            return fail("device is cuda, but there is no nvidia-smi", "install the driver, or set it to auto")
        return not_used("no NVIDIA GPU: everything runs on the processor")
    if torch.version.cuda is None:
        return fail("torch is a build for processors", "run `make .venv/.ready`")
    try:
        torch.cuda.current_device()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        return fail(f"torch cannot use the GPU ({reason})", "install a newer driver, or see whether the GPU is hidden")
    count, first = torch.cuda.device_count(), torch.cuda.get_device_properties(0)
    detail = f"{count} x {first.name}, {first.total_memory >> 20:,} MiB, torch's CUDA {torch.version.cuda}"
    if settings is not None and settings.train.processes > count:
        fix = f"train.processes is {settings.train.processes}: lower it to the number of GPUs"
        return fail(detail, fix)
    return ok(detail)


def check_disk(installation: Installation) -> CheckResult:
    """The disk has room for the outputs of the stages."""
    usage = shutil.disk_usage(installation.folder)
    detail = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free"
    fix = "make room: `dvc gc --workspace` removes outputs that no stage has any longer"
    if usage.free < _LEAST_BYTES:
        return fail(detail, fix)
    return warn(detail, fix) if usage.free < _GOOD_BYTES else ok(detail)
