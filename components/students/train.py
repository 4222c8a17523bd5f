"""Trains a student: adapter, held-out loss, acceptance, record and MLflow run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from components.captions.generating.engines.local import EmbeddedOptions, LocalEngine
from components.captions.language_models.language_model import LanguageModel, load_language_model
from components.core.compute.distributed import World
from components.core.compute.hardware import bf16_is_native
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder
from components.students.job import StudentJob, state_of
from components.students.lessons import Lesson
from components.students.loop import EncodedLesson, Place, add_adapter, check_scores, encode, fit, mean_loss
from components.students.save_model import save_model
from components.tracking import TrackedRun, tracked_run

if TYPE_CHECKING:
    from components.students.acceptance import Examination

BEFORE, AFTER = "before", "after"


def train(settings: Settings, job: StudentJob, world: World, device: str) -> None:
    """Write the adapter and its record to the job's folder, unless it is there already.

    Every rank of `world` must call it.
    """
    done = job.is_done()
    world.wait()
    if not done:
        dtype = torch.bfloat16 if bf16_is_native(device) else torch.float32
        _train(settings, job, Place(world, device, None if dtype == torch.float32 else dtype), dtype)
    elif world.leads:
        print(f"{job.name}: already trained on these lessons")
    if world.leads and job.student.merge and not (job.folder / "merged").is_dir():
        save_model(job.folder / "merged", job.folder, torch.bfloat16, job.student.base)


def _split_lessons(job: StudentJob) -> tuple[list[Lesson], list[Lesson]]:
    """The lessons to train on, shuffled, and those held out."""
    shuffled = list(job.lessons)
    random.Random(job.student.seed).shuffle(shuffled)
    count = int(len(shuffled) * job.student.held_out)
    if count == 0:
        raise InputError(f"{job.name}: {len(shuffled)} lessons leave none to hold out: raise held_out or give more")
    return shuffled[count:], shuffled[:count]


def _train(settings: Settings, job: StudentJob, place: Place, dtype: torch.dtype) -> None:
    taught, held_out = _split_lessons(job)
    params = {"student": job.student.model_dump(mode="json"), "base": job.base, "lessons": len(taught)}
    recording = tracked_run("student", job.name, settings, params, job.inputs) if place.world.leads else nullcontext()
    with recording as tracked:
        # First, because a file that it reads may be missing.
        examination = _examination(settings, job, held_out) if tracked is not None and job.student.acceptance else None
        # The frozen weights are kept in the type of the multiplication.
        loaded = load_language_model(None, dtype, job.student.base)
        examples, unseen = (
            encode(loaded.tokenizer, lessons, shown=tracked is not None) for lessons in (taught, held_out)
        )
        model = add_adapter(loaded.model.to(place.device), job.student.rank, job.student.seed)
        check_scores(model, examples, place)
        report = tracked.log_metrics if tracked is not None else lambda _metrics, _step: None
        steps = fit(job.name, model, examples, job.student, place, job.checkpoints, report)
        losses = _held_out_losses(model, unseen, job, place)
        if tracked is not None:
            measured = {"held_out": len(held_out), "held_out_loss": losses}
            if examination is not None:
                measured["acceptance"] = _acceptance(job.name, examination, model, loaded)
            _log(tracked, measured, steps)
            _save(model, job, len(examples), measured | {"mlflow_run": tracked.id})
            tracked.log_artifact(job.folder)
            job.checkpoints.clear()


def _held_out_losses(model: Any, unseen: list[EncodedLesson], job: StudentJob, place: Place) -> dict[str, float]:
    batch_size = job.student.batch_size
    with model.disable_adapter():
        before = mean_loss(model, unseen, batch_size, place)
    after = mean_loss(model, unseen, batch_size, place)
    if place.world.leads:
        print(f"{job.name}: held-out loss per token {before:.3f} before, {after:.3f} after ({len(unseen)} lessons)")
    return {BEFORE: round(before, 4), AFTER: round(after, 4)}


def _examination(settings: Settings, job: StudentJob, held_out: list[Lesson]) -> Examination:
    from components.students.acceptance import prepare_examination

    return prepare_examination(settings, job.student, job.lessons, held_out, state_of(job.name))


def _acceptance(name: str, examination: Examination, model: Any, loaded: LanguageModel) -> dict[str, dict[str, float]]:
    """Task -> share of answers that validation would accept, of the base and of the student."""
    alike = LanguageModel(model.get_base_model(), loaded.tokenizer, loaded.revision)
    engine = LocalEngine(EmbeddedOptions(batch_size=64), alike)
    with model.disable_adapter():
        before = examination.rates(engine)
    after = examination.rates(engine)
    for task in after:
        print(f"{name}: {task} accepted {before[task]:.0%} before, {after[task]:.0%} after")
    return {task: {BEFORE: round(before[task], 4), AFTER: round(after[task], 4)} for task in after}


def _log(tracked: TrackedRun, measured: Mapping[str, Any], steps: int) -> None:
    for moment, step in ((BEFORE, 0), (AFTER, steps)):
        rates = {f"acceptance/{task}": rate[moment] for task, rate in measured.get("acceptance", {}).items()}
        tracked.log_metrics({"held_out/loss": measured["held_out_loss"][moment], **rates}, step)


def _save(model: Any, job: StudentJob, examples: int, measured: Mapping[str, Any]) -> None:
    with atomic_folder(job.folder) as folder:
        # Embeddings are not trained; peft would look for the base's, which a package does not have.
        model.to(torch.bfloat16).save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        job.describe(folder, examples, measured)
