"""Checks that data which the pipeline does not make itself is there: image folder, shards, weights."""

from __future__ import annotations

from components.core.errors import InputError
from components.core.settings import Settings
from components.data.sources import find_source
from components.data.sources.folder import CAPTIONS
from components.doctor.check import Check, Finding, Surroundings, fail, not_used, ok


def _examine(around: Surroundings) -> Finding:
    settings = around.settings
    missing = [fault for look in (_folder, _benchmarks, _weights, _shards) for fault in look(around, settings)]
    if missing:
        return fail("; ".join(what for what, _ in missing), "; ".join(fix for _, fix in missing))
    if settings.prepare.source == "embedded":
        return not_used("the embedded world makes its data itself")
    return ok(f"{settings.prepare.folder} and what else params.yaml names")


def _folder(around: Surroundings, settings: Settings) -> list[tuple[str, str]]:
    source = find_source(settings.prepare.source)
    if source.file is None:
        return []
    folder = settings.prepare.folder
    if folder is None or not (around.folder / folder).is_dir():
        unset = ("prepare.folder is not set", "name the image folder in params.yaml")
        missing = (f"prepare.folder {folder} is missing", f"put the images and {source.file} into {folder}")
        return [unset if folder is None else missing]
    found = source.found_in(around.folder / folder)
    if found is None:
        return [(f"{folder / source.file} is missing", source.how)]
    if found != CAPTIONS or "paraphrased_retrieval" not in settings.evaluate.benchmarks:
        return []
    with (around.folder / folder / found).open(encoding="utf-8", errors="replace") as stream:
        columns = stream.readline().rstrip("\n").split("\t")
    fix = "write some there, or take paraphrased_retrieval out of evaluate.benchmarks and promote in params.yaml"
    fault = (f"{folder / found} has no column paraphrase, which benchmark paraphrased_retrieval needs", fix)
    return [] if "paraphrase" in columns else [fault]


def _benchmarks(around: Surroundings, settings: Settings) -> list[tuple[str, str]]:
    folder = settings.prepare.benchmarks
    if folder is None or (around.folder / folder).is_dir():
        return []
    return [(f"prepare.benchmarks {folder} is missing", "put the published test sets there, or set it to null")]


def _weights(around: Surroundings, settings: Settings) -> list[tuple[str, str]]:
    source, file = settings.base.source, settings.base.file
    if source not in ("file", "timm") or (source == "timm" and file is None):
        return []
    if file is not None and (around.folder / file).exists():
        return []
    return [(f"base.file {file} is missing", "put the weights there, or correct base.file")]


def _shards(around: Surroundings, settings: Settings) -> list[tuple[str, str]]:
    """The first shard stands for all: the train stage looks at each before it begins."""
    if settings.train.shards is None:
        return []
    from braceexpand import braceexpand

    first = next(iter(braceexpand(settings.train.shards.urls)))
    fix = "put the shards there (`cliptune s3 put`), or correct train.shards.urls"
    if not first.startswith("s3://"):
        return [] if (around.folder / first).exists() else [(f"train.shards {first} is missing", fix)]
    from components.core.storage import S3

    try:
        store = S3(hurry=True)
        there = store.exists(first) if first.endswith(".tar") else bool(store.list(first))
    except InputError as error:
        detail, _, how = str(error).rpartition(": ")
        return [(f"train.shards: {detail}", how)]
    return [] if there else [(f"train.shards {first} is missing", fix)]


CHECK = Check("data", 13, _examine, needs_settings=True)
