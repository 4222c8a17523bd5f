"""Checks of this machine: params.yaml, GPU, disk space, and data that no stage makes."""

from __future__ import annotations

import shutil

from components.cli.doctor.check import CheckResult, Installation, fail, not_used, ok, warn
from components.core.system.checking import check_settings
from components.core.system.errors import InputError
from components.data.sources import find_source

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


def check_data(installation: Installation) -> CheckResult:
    """The folder of pictures, the published test sets and the weights that params.yaml names exist."""
    prepare, base, root = installation.settings.prepare, installation.settings.base, installation.folder
    named = {"prepare.folder": prepare.folder, "prepare.heldout_testsets_dir": prepare.heldout_testsets_dir}
    if base.source in ("file", "timm"):
        named["base.file"] = base.file
    if missing := [f"{key} {path} is missing" for key, path in named.items() if path and not (root / path).exists()]:
        return fail("; ".join(missing), "put the files there, or correct the path")
    source = find_source(prepare.source)
    if source.file is not None and (prepare.folder is None or source.found_in(root / prepare.folder) is None):
        return fail(f"prepare.folder {prepare.folder} has no {source.file}", "put it there, or correct prepare.folder")
    return ok(f"{prepare.folder} exists") if source.file is not None else not_used("the source reads no folder")
