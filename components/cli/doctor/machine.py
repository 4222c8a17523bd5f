"""Checks of this machine: params.yaml, versions, GPU, disk space, and data that no stage makes."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from components.cli.doctor.check import CheckResult, Installation, fail, not_used, ok, warn
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
