"""Checks of this machine: params.yaml, GPU, and data that no stage makes."""

from __future__ import annotations

import shutil

from components.cli.doctor.check import CheckResult, Installation, fail, not_used, ok
from components.core.pictures.shard_files import ShardFiles, find_shards
from components.core.system.checking import check_settings
from components.core.system.errors import InputError
from components.data.sources import find_source
from components.data.sources.folder import CAPTIONS


def check_params(installation: Installation) -> CheckResult:
    """All keys and names of params.yaml are known."""
    settings = installation.loaded
    if settings is None:
        raise InputError(installation.fault)
    check_settings(settings)
    methods, encoders = len(settings.methods), len(settings.compare_encoders)
    return ok(f"dataset '{settings.dataset.name}', {methods} methods, {encoders} encoders")


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


def check_data(installation: Installation) -> CheckResult:
    """The folder of pictures, the published test sets, the weights and the shards that params.yaml names exist."""
    settings, root = installation.settings, installation.folder
    prepare, base, source = settings.prepare, settings.base, find_source(settings.prepare.source)
    folder = None if prepare.folder is None else root / prepare.folder
    named = {"prepare.folder": prepare.folder, "prepare.heldout_testsets_dir": prepare.heldout_testsets_dir}
    named |= {"base.file": base.file} if base.source in ("file", "timm") else {}
    there = [f"{key} {path} is missing" for key, path in named.items() if path and not (root / path).exists()]
    faults = dict.fromkeys(there, "put the files there, or correct the path")
    file = None if folder is None else source.found_in(folder)
    if source.file is not None and file is None and (folder is None or folder.exists()):
        faults[f"prepare.folder {prepare.folder} has no {source.file}"] = source.how
    is_needed = settings.test_set.llm is None and "paraphrased_retrieval" in settings.evaluate.benchmarks
    if folder is not None and file == CAPTIONS and is_needed:
        with (folder / file).open(encoding="utf-8", errors="replace") as stream:
            if "paraphrase" not in stream.readline().rstrip("\n").split("\t"):
                fix = "add it, or set test_set.llm in params.yaml, and a model writes the paraphrases"
                faults[f"{file} has no column paraphrase, which benchmark paraphrased_retrieval needs"] = fix
    if settings.train.shards is not None:
        try:
            find_shards(settings.train.shards.urls, ShardFiles(attempts=1))
        except InputError as error:
            faults[f"train.shards: {error}"] = "correct train.shards"
    if faults:
        return fail("; ".join(faults), "; ".join(dict.fromkeys(faults.values())))
    return ok(f"{prepare.folder} and all other files exist") if source.file else not_used("the source reads no folder")
