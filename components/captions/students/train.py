"""A student's training job: its lessons, adapter, acceptance and record, in one MLflow run."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from trl import SFTTrainer

from components.captions.generating.engines.local import EmbeddedOptions, LocalEngine
from components.captions.students.acceptance import Examiner
from components.captions.students.lessons import STATE, Lesson, hash_of, lessons_of, teacher_files
from components.captions.students.save_model import save_model
from components.captions.students.trainer import computes_in_bf16, fit, make_trainer
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.core.compute.provenance import hash_of_code
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder, content_hash, file_hash, write_json
from components.core.tracking import TrackedRun, tracked_run
from components.encoders.language_models.language_model import (
    BASE_NAME,
    LanguageModel,
    load_language_model,
    revision_of,
)

ADAPTER, RECORD = "adapter_model.safetensors", "student.json"
_UNCHANGING = {
    "acceptance", "captions", "checkpoint_every", "merge", "micro_batch", "per_task", "processes", "tasks", "teacher",
}  # fmt: skip
"""Settings that do not change the adapter, or do so by the lessons alone."""


@dataclass(frozen=True)
class StudentJob:
    """A student to train."""

    name: str
    student: Student
    folder: Path
    lessons: list[Lesson]
    base: str

    @cached_property
    def lessons_hash(self) -> str:
        """Hash of the questions and answers."""
        return hash_of(self.lessons)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with everything that the adapter depends on."""
        return content_hash(self.student.model_dump_json(exclude=_UNCHANGING), self.base, self.lessons_hash)

    @property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of this fingerprint and of the current code."""
        return Checkpoints(STATE / self.name / f"checkpoints-{content_hash(self.fingerprint, code_hash())[:16]}")

    @property
    def inputs(self) -> dict[str, Path]:
        """The files that it learns from, by name."""
        return {file.stem: file for file in teacher_files(self.name, self.student)}

    def is_done(self) -> bool:
        """Whether its adapter exists, with the same settings, base, lessons and (where recorded) code."""
        record = read_record(self.folder)
        same = record.get("fingerprint") == self.fingerprint and record.get("code", code_hash()) == code_hash()
        return same and (self.folder / ADAPTER).is_file()

    def describe(self, folder: Path, examples: int, measured: Mapping[str, Any]) -> None:
        """Write the record of the adapter to `folder`."""
        # peft writes a path of the base, which may exist only on this machine.
        config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
        named = {"base_model_name_or_path": self.student.base or BASE_NAME}
        write_json(
            folder / "adapter_config.json", config | named | {"target_modules": sorted(config["target_modules"])}
        )
        teacher = self.student.teacher
        record = {
            "base": self.base,
            "teacher": teacher if isinstance(teacher, str) else [file.name for file in teacher],
            "teacher_sha256": {path.name: file_hash(path) for path in self.inputs.values()},
            "lessons_sha256": self.lessons_hash,
            "tasks": sorted({lesson.task.name for lesson in self.lessons}),
            "examples": examples,
            "settings": self.student.model_dump(mode="json", exclude={"tasks", "teacher"}),
            "fingerprint": self.fingerprint,
            "code": code_hash(),
            **measured,
            "date": datetime.now(UTC).date().isoformat(),
        }
        write_json(folder / RECORD, record)


@cache
def code_hash() -> str:
    """Hash of the files that compute an adapter, without docstrings and comments."""
    return hash_of_code(*(Path(__file__).parent / name for name in ("train.py", "trainer.py")))


def find_student(settings: Settings, name: str) -> Student:
    """The settings that params.yaml has under `students.<name>`; raises `InputError` for an unknown name."""
    if name not in settings.students:
        known = ", ".join(settings.students) or "none"
        raise InputError(f"params.yaml has no block students.{name}: add one, or choose one of {known}")
    return settings.students[name]


def find_job(settings: Settings, name: str, output: Path) -> StudentJob:
    """The job of the student called `name`, whose folder is below `output`."""
    student = find_student(settings, name)
    lessons = lessons_of(settings, name, student)
    return StudentJob(name, student, output / name, lessons, revision_of(None, student.base))


def read_record(folder: Path) -> dict[str, Any]:
    """The record of the adapter in `folder`; empty where it is missing or broken."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return record


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
