"""Trains a student: lessons, adapter, acceptance and record, in one MLflow run."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from trl import SFTTrainer

from components.captions.generating.engines.local import EmbeddedOptions, LocalEngine
from components.captions.students.acceptance import Examiner
from components.captions.students.job import StudentJob
from components.captions.students.lessons import Lesson
from components.captions.students.save_model import save_model
from components.captions.students.trainer import computes_in_bf16, fit, make_trainer
from components.core.compute.distributed import World
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder
from components.core.tracking import TrackedRun, tracked_run
from components.encoders.language_models.language_model import LanguageModel, load_language_model

BEFORE, AFTER = "before", "after"
Measured = dict[str, float]
"""A measure of the base (`before`) and of the student (`after`)."""


def train(settings: Settings, job: StudentJob, world: World, device: str) -> None:
    """Write the adapter and its record to the job's folder, unless it is there already.

    Every rank of `world` must call it.
    """
    done = job.is_done()
    world.wait()
    if not done:
        _train(settings, job, world, device)
    elif world.leads:
        print(f"{job.name}: already trained on these lessons")
    if world.leads and job.student.merge and not (job.folder / "merged").is_dir():
        save_model(job.folder / "merged", job.folder, torch.bfloat16, job.student.base)


def _train(settings: Settings, job: StudentJob, world: World, device: str) -> None:
    taught, held_out = _split_lessons(job)
    params = {"student": job.student.model_dump(mode="json"), "base": job.base, "lessons": len(taught)}
    recording = tracked_run("student", job.name, settings, params, job.inputs) if world.leads else nullcontext()
    with recording as tracked:
        # First, because a file that it reads may be missing.
        examiner = Examiner(settings) if tracked is not None and job.student.acceptance else None
        # The frozen weights are kept in the type of the multiplication.
        dtype = torch.bfloat16 if computes_in_bf16(device) else torch.float32
        loaded = load_language_model(None, dtype, job.student.base)
        report = tracked.log_metrics if tracked is not None else lambda _metrics, _step: None
        trainer = make_trainer(job, loaded, taught, held_out, world, device, report)
        steps = fit(trainer, job, world)
        measured: dict[str, Any] = {"held_out": len(held_out), "held_out_loss": _losses(trainer)}
        if tracked is None:
            return
        shown = "{before:.3f} before, {after:.3f} after".format_map(measured["held_out_loss"])
        print(f"{job.name}: held-out loss per token {shown} ({len(held_out)} lessons)")
        if examiner is not None:
            measured["acceptance"] = _acceptance(job, examiner, held_out, trainer.model, loaded)
        _log(tracked, measured, steps)
        _save(trainer.model, job, len(taught), measured | {"mlflow_run": tracked.id})
        tracked.log_artifact(job.folder)
        job.checkpoints.clear()


def _split_lessons(job: StudentJob) -> tuple[list[Lesson], list[Lesson]]:
    """The lessons to train on, shuffled, and those held out."""
    shuffled = list(job.lessons)
    random.Random(job.student.seed).shuffle(shuffled)
    count = int(len(shuffled) * job.student.held_out)
    if count == 0:
        raise InputError(f"{job.name}: {len(shuffled)} lessons leave none to hold out: raise held_out or give more")
    return shuffled[count:], shuffled[:count]


def _losses(trainer: SFTTrainer) -> Measured:
    """Held-out loss per token, the mean over lessons of that of their batch."""
    with trainer.model.disable_adapter():
        before = trainer.evaluate()["eval_loss"]
    return {BEFORE: round(before, 4), AFTER: round(trainer.evaluate()["eval_loss"], 4)}


def _acceptance(
    job: StudentJob, examiner: Examiner, held_out: Sequence[Lesson], model: Any, loaded: LanguageModel
) -> dict[str, Measured]:
    """Task -> share of answers that validation would accept, of the base and of the student."""
    model.eval()
    alike = LanguageModel(model.get_base_model(), loaded.tokenizer, loaded.revision)
    engine = LocalEngine(EmbeddedOptions(batch_size=64), alike)
    with model.disable_adapter():
        before = examiner.rates(engine, held_out, job.student.acceptance)
    after = examiner.rates(engine, held_out, job.student.acceptance)
    for task in after:
        print(f"{job.name}: {task} accepted {before[task]:.0%} before, {after[task]:.0%} after")
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
