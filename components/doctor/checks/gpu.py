"""Checks GPUs and driver against torch and the settings."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

from components.doctor.check import SECONDS, Check, Finding, Surroundings, fail, not_used, ok

_QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]


def _examine(around: Surroundings) -> Finding:
    train = around.loaded.train if around.loaded is not None else None
    wanted = train is not None and train.device.startswith("cuda")
    try:
        listing = _run(_QUERY)
    except FileNotFoundError:
        if wanted:
            return fail("train.device asks for CUDA, but there is no nvidia-smi", "install the driver, or ask for auto")
        return not_used("no NVIDIA GPU: everything runs on the processor")
    except (subprocess.SubprocessError, OSError) as error:
        return fail(f"nvidia-smi fails ({error})", "reload the driver (`modprobe nvidia`), or restart the machine")
    gpus = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines() if line.strip()]
    if not gpus:
        return fail("nvidia-smi lists no GPU", "see whether CUDA_VISIBLE_DEVICES or the container hides them")
    return _fits(gpus, train.processes if train is not None else 1)


def _fits(gpus: list[list[str]], processes: int) -> Finding:
    theirs, ours = driver_cuda(_run(["nvidia-smi"])), torch_cuda()
    detail = f"{len(gpus)} x {gpus[0][0]}, {int(gpus[0][1]):,} MiB, driver {gpus[0][2]}, torch's CUDA {ours or 'none'}"
    if ours is None:
        return fail(detail, "torch is a build for processors: run `make .venv/.ready`")
    if theirs is not None and theirs[0] < int(ours.split(".")[0]):
        return fail(f"{detail}; the driver knows CUDA {theirs[0]}.{theirs[1]}", "install a newer driver")
    if processes > len(gpus):
        return fail(f"{detail}; train.processes is {processes}", "lower train.processes to the number of GPUs")
    return ok(detail)


def driver_cuda(table: str) -> tuple[int, int] | None:
    """The newest CUDA that the driver knows, of nvidia-smi's table; None when it does not say."""
    found = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)", table)
    return (int(found[1]), int(found[2])) if found else None


def torch_cuda() -> str | None:
    """The CUDA that torch was built with, read without importing torch, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found = re.search(r"^cuda\b.*= '([\d.]+)'", Path(spec.origin).with_name("version.py").read_text("utf-8"), re.M)
    return found[1] if found else None


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=True).stdout


CHECK = Check("GPU and driver", 10, _examine)
