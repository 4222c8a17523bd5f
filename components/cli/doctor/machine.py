"""Checks of this machine: params.yaml, versions, GPU, disk space, and data that no stage makes."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from components.cli.doctor.check import TIMEOUT_S, CheckResult, Installation, fail, not_used, ok, warn
from components.core.pictures.shard_files import ShardFiles, find_shards
from components.core.settings import Settings
from components.core.system.checking import check_settings
from components.core.system.errors import InputError
from components.data.sources import find_source
from components.data.sources.folder import CAPTIONS

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


def check_versions(_installation: Installation) -> CheckResult:
    """Python and the packages have the required versions."""
    try:
        wanted = [Requirement(line) for line in requires("cliptune") or []]
    except PackageNotFoundError:
        return fail("cliptune is not installed as a package", "run `make .venv/.ready`, or `pip install -e .`")
    if faults := list(filter(None, map(_version_fault, wanted))):
        return fail("; ".join(faults), "run `make .venv/.ready` to install the packages of requirements/main.txt")
    if shutil.which("git") is None:
        return fail("git is not installed", "install git: commits are part of every run's record")
    packages = {"cliptune": "cliptune", "torch": "torch", "MLflow": "mlflow", "Prefect": "prefect", "DVC": "dvc"}
    versions = ", ".join(f"{title} {_installed(name) or 'not installed'}" for title, name in packages.items())
    return ok(f"Python {platform.python_version()}, {versions}")


def _version_fault(wanted: Requirement) -> str:
    """The fault of a package, empty without one; a package of an extra may be missing."""
    if (installed := _installed(wanted.name)) is None:
        is_needed = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        return f"{wanted.name} is missing" if is_needed else ""
    fits = wanted.specifier.contains(installed, prereleases=True)
    return "" if fits else f"{wanted.name} {installed} is not {wanted.specifier}"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_gpu(installation: Installation) -> CheckResult:
    """GPUs and driver fit torch, `device` and `train`."""
    settings = installation.loaded
    try:
        listing = _nvidia_smi("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    except FileNotFoundError:
        if settings is not None and settings.device.startswith("cuda"):
            return fail("device is cuda, but there is no nvidia-smi", "install the driver, or set it to auto")
        return not_used("no NVIDIA GPU: everything runs on the processor")
    except (subprocess.SubprocessError, OSError) as error:
        return fail(f"nvidia-smi fails ({error})", "reload the driver (`modprobe nvidia`), or restart the machine")
    gpus = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines() if line.strip()]
    if not gpus:
        return fail("nvidia-smi lists no GPU", "check whether CUDA_VISIBLE_DEVICES or the container hides them")
    theirs, ours = driver_cuda(_nvidia_smi()), torch_cuda()
    detail = f"{len(gpus)} x {gpus[0][0]}, {int(gpus[0][1]):,} MiB, driver {gpus[0][2]}, torch's CUDA {ours or 'none'}"
    if ours is None:
        fix = "torch is a build for processors: run `make .venv/.ready`"
    elif theirs is not None and theirs[0] < int(ours.split(".")[0]):
        fix = f"the driver supports CUDA {theirs[0]}.{theirs[1]}: install a newer driver"
    elif settings is not None and settings.train.processes > len(gpus):
        fix = f"train.processes is {settings.train.processes}: lower it to the number of GPUs"
    else:
        return ok(detail)
    return fail(detail, fix)


def driver_cuda(table: str) -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports, read from nvidia-smi's table; None if it is not there."""
    match = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)", table)
    return (int(match[1]), int(match[2])) if match else None


def torch_cuda() -> str | None:
    """The CUDA version that torch was built with, read without importing torch, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    match = re.search(r"^cuda\b.*= '([\d.]+)'", Path(spec.origin).with_name("version.py").read_text("utf-8"), re.M)
    return match[1] if match else None


def _nvidia_smi(*options: str) -> str:
    command = ["nvidia-smi", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=True).stdout


def check_disk(installation: Installation) -> CheckResult:
    """The disk has room for the outputs of the stages."""
    usage = shutil.disk_usage(installation.folder)
    detail = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free"
    fix = "make room: `dvc gc --workspace` removes outputs that no stage has any longer"
    if usage.free < _LEAST_BYTES:
        return fail(detail, fix)
    return warn(detail, fix) if usage.free < _GOOD_BYTES else ok(detail)


def check_data(installation: Installation) -> CheckResult:
    """Image folder, test sets, weights and shards that params.yaml names exist."""
    folder, settings = installation.folder, installation.settings
    faults = [*_folder_faults(folder, settings), *_file_faults(folder, settings)]
    if settings.train.shards is not None:
        try:
            find_shards(settings.train.shards.urls, ShardFiles(attempts=1))
        except InputError as error:
            detail, _, fix = str(error).rpartition(": ")
            faults.append((f"train.shards: {detail}", fix))
    if faults:
        return fail("; ".join(detail for detail, _ in faults), "; ".join(fix for _, fix in faults))
    if settings.prepare.source == "synthetic":
        return not_used("the demo draws its images itself")
    return ok(f"{settings.prepare.folder} and all other files of params.yaml exist")


def _folder_faults(root: Path, settings: Settings) -> list[tuple[str, str]]:
    source, folder = find_source(settings.prepare.source), settings.prepare.folder
    if source.file is None:
        return []
    if folder is None:
        return [("prepare.folder is not set", "name the image folder in params.yaml")]
    if not (root / folder).is_dir():
        return [(f"prepare.folder {folder} is missing", f"put the images and {source.file} into {folder}")]
    file = source.found_in(root / folder)
    if file is None:
        return [(f"{folder / source.file} is missing", source.how)]
    if file != CAPTIONS or settings.test_set.llm or "paraphrased_retrieval" not in settings.evaluate.benchmarks:
        return []
    with (root / folder / file).open(encoding="utf-8", errors="replace") as stream:
        columns = stream.readline().rstrip("\n").split("\t")
    fix = "add it, or set test_set.llm in params.yaml, and a model writes the paraphrases"
    fault = (f"{folder / file} has no column paraphrase, which benchmark paraphrased_retrieval needs", fix)
    return [] if "paraphrase" in columns else [fault]


def _file_faults(root: Path, settings: Settings) -> list[tuple[str, str]]:
    faults = []
    benchmarks, source, file = settings.prepare.heldout_testsets_dir, settings.base.source, settings.base.file
    if benchmarks is not None and not (root / benchmarks).is_dir():
        fix = "put the published test sets there, or set it to null"
        faults.append((f"prepare.heldout_testsets_dir {benchmarks} is missing", fix))
    is_needed = source == "file" or (source == "timm" and file is not None)
    if is_needed and (file is None or not (root / file).exists()):
        faults.append((f"base.file {file} is missing", "put the weights there, or correct base.file"))
    return faults
