"""Trains a student in one MLflow run: a LoRA adapter by trl's `SFTTrainer`, resumable, on any ranks; its record."""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from datasets import Dataset
from huggingface_hub import constants
from jinja2 import TemplateError
from peft import LoraConfig
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from components.captions.generating.engines.local import EmbeddedOptions, LocalEngine
from components.captions.prompting.request import COMPLETION
from components.captions.students.lessons import STATE, Examiner, Lesson, chat_of, hash_of, lessons_of, teacher_files
from components.captions.students.save_model import save_model
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.devices import bf16_is_native
from components.core.compute.distributed import World
from components.core.compute.provenance import hash_of_code
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.files import atomic_folder, content_hash, file_hash, write_json
from components.core.tracking import tracked_run
from components.encoders.language_models.language_model import (
    BASE_NAME,
    LanguageModel,
    load_language_model,
    revision_of,
)

ADAPTER, RECORD = "adapter_model.safetensors", "student.json"
T = TypeVar("T")
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
        try:
            record = json.loads((self.folder / RECORD).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return False
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
    """Hash of this file, which computes an adapter, without docstrings and comments."""
    return hash_of_code(Path(__file__))


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
        # Per token, the mean over lessons of that of their batch.
        losses = _of_base_and_student(trainer.model, lambda: round(trainer.evaluate()["eval_loss"], 4))
        measured: dict[str, Any] = {"held_out": len(held_out), "held_out_loss": losses}
        if tracked is None:
            return
        shown = "{before:.3f} before, {after:.3f} after".format_map(losses)
        print(f"{job.name}: held-out loss per token {shown} ({len(held_out)} lessons)")
        if examiner is not None:
            measured["acceptance"] = _acceptance(job, examiner, held_out, trainer.model, loaded)
        for moment, step in (("before", 0), ("after", steps)):
            rates = {f"acceptance/{task}": rate[moment] for task, rate in measured.get("acceptance", {}).items()}
            tracked.log_metrics({"held_out/loss": losses[moment], **rates}, step)
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


def _of_base_and_student(model: Any, measure: Callable[[], T]) -> dict[str, T]:
    """What `measure` finds with the adapter switched off (`before`) and on (`after`)."""
    with model.disable_adapter():
        before = measure()
    return {"before": before, "after": measure()}


def _acceptance(
    job: StudentJob, examiner: Examiner, held_out: Sequence[Lesson], model: Any, loaded: LanguageModel
) -> dict[str, dict[str, float]]:
    """Task -> share of answers that validation would accept, of the base and of the student."""
    model.eval()
    alike = LanguageModel(model.get_base_model(), loaded.tokenizer, loaded.revision)
    engine = LocalEngine(EmbeddedOptions(batch_size=64), alike)
    rates = _of_base_and_student(model, lambda: examiner.rates(engine, held_out, job.student.acceptance))
    for task in rates["after"]:
        print(f"{job.name}: {task} accepted {rates['before'][task]:.0%} before, {rates['after'][task]:.0%} after")
    return {task: {moment: round(rate[task], 4) for moment, rate in rates.items()} for task in rates["after"]}


def _save(model: Any, job: StudentJob, examples: int, measured: Mapping[str, Any]) -> None:
    with atomic_folder(job.folder) as folder:
        # Embeddings are not trained; peft would look for the base's, which a package does not have.
        model.to(torch.bfloat16).save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        job.describe(folder, examples, measured)


_STATE = "trainer_state.json"
_IGNORED = -100
_LENGTH_STEP = 32

Report = Callable[[dict[str, float], int], None]
"""Takes a step's metrics and its number, from 1."""


def make_trainer(
    job: StudentJob,
    loaded: LanguageModel,
    taught: Sequence[Lesson],
    held_out: Sequence[Lesson],
    world: World,
    device: str,
    report: Report,
) -> SFTTrainer:
    """A trainer of a new adapter on all linear layers of the model; `evaluate` measures the held-out lessons."""
    # trl reports its use to its makers. This holds whatever read the environment's variables before.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    train, unseen = (encode(loaded.tokenizer, lessons) for lessons in (taught, held_out))
    with warnings.catch_warnings():
        # peft uses the old name of an attribute of transformers.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        trainer = SFTTrainer(
            model=loaded.model,
            args=_arguments(job.student, job.checkpoints.folder, world, device),
            train_dataset=train,
            eval_dataset=unseen,
            processing_class=loaded.tokenizer,
            peft_config=LoraConfig(r=job.student.rank, lora_alpha=2 * job.student.rank, target_modules="all-linear"),
            callbacks=[_Progress(job.name, report, world)],
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


def fit(trainer: SFTTrainer, job: StudentJob, world: World) -> int:
    """Train to the end, from the newest whole checkpoint of the job where there is one; returns the number of steps.

    transformers keeps the optimiser's state as pickles, and reads their tensors alone. The folder holds only
    checkpoints that this job has written on this machine: do not copy others to it.
    """
    with job.checkpoints.held() if world.leads else nullcontext():
        world.wait()
        trainer.train(resume_from_checkpoint=newest_checkpoint(job.checkpoints.folder))
    return int(trainer.state.global_step)


def newest_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end; the trainer writes its state last."""
    whole = {int(state.parent.name.rpartition("-")[2]): state.parent for state in folder.glob(f"checkpoint-*/{_STATE}")}
    return str(whole[max(whole)]) if whole else None


def computes_in_bf16(device: str) -> bool:
    """Whether a student is trained in bfloat16: on a GPU that has it in hardware."""
    return device.startswith("cuda") and bf16_is_native(device)


def _arguments(plan: Student, folder: Path, world: World, device: str) -> SFTConfig:
    share = world.share(plan.batch_size)
    piece = max(size for size in range(1, min(plan.micro_batch or share, share) + 1) if share % size == 0)
    gpu = device.startswith("cuda")
    arguments = SFTConfig(
        output_dir=str(folder),
        num_train_epochs=plan.epochs,
        per_device_train_batch_size=piece,
        per_device_eval_batch_size=piece,
        gradient_accumulation_steps=share // piece,
        activation_checkpointing=False,
        learning_rate=plan.lr,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        seed=plan.seed,
        max_length=None,
        train_sampling_strategy="group_by_length",
        # On a CPU every new shape costs seconds of kernel building, far more than some padding.
        pad_to_multiple_of=_LENGTH_STEP,
        use_cpu=not gpu,
        bf16=computes_in_bf16(device),
        ddp_backend=None if world.size == 1 else "nccl" if gpu else "gloo",
        dataloader_pin_memory=gpu,
        save_steps=plan.checkpoint_every,
        save_total_limit=2,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to="none",
    )
    if gpu and world.size == 1:
        # The trainer would take the first GPU and refuse a second one that it can see.
        chosen = torch.device(device if ":" in device else f"{device}:0")
        torch.cuda.set_device(chosen)
        arguments.__dict__["_setup_devices"], arguments._n_gpu = chosen, 1
    return arguments


class _Progress(TrainerCallback):  # type: ignore[misc]
    """Shows a bar, reports the metrics of every step, and refuses a loss that is not finite."""

    def __init__(self, title: str, report: Report, world: World) -> None:
        self._title, self._report, self._world = title, report, world

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self._bar = bar(self._title, state.max_steps if self._world.leads else 0, "step", state.global_step)

    def on_step_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        self._bar.update()

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        self._bar.close()

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, float], **_: Any) -> None:
        if "loss" not in logs:
            return
        if not math.isfinite(logs["loss"]):
            raise InputError(f"{self._title}: the loss is not finite at step {state.global_step}: lower lr")
        names = {"train/loss": "loss", "train/lr": "learning_rate", "train/gradient_norm": "grad_norm"}
        self._report({name: logs[key] for name, key in names.items()}, state.global_step)


def encode(tokenizer: Any, lessons: Sequence[Lesson]) -> Dataset:
    """The lessons as token ids: the question as engines render it, then the answer and its end token, which count."""
    columns: dict[str, list[list[int]]] = {"input_ids": [], "labels": []}
    for prompt, answer, plain in (_texts(tokenizer, lesson) for lesson in lessons):
        # As in the engine: a template has already written the special tokens; a plain text needs them.
        asked = tokenizer(prompt, add_special_tokens=plain)["input_ids"]
        answered = tokenizer(answer, add_special_tokens=False)["input_ids"]
        columns["input_ids"].append(asked + answered)
        columns["labels"].append([_IGNORED] * len(asked) + answered)
    return Dataset.from_dict(columns)


def _texts(tokenizer: Any, lesson: Lesson) -> tuple[str, str, bool]:
    """The prompt, its continuation, and whether it is plain text."""
    messages = chat_of(lesson)
    if messages[0]["role"] == COMPLETION:
        prompt = messages[0]["content"]
        return prompt, f"{'' if prompt[-1:].isspace() else ' '}{lesson.answer}{tokenizer.eos_token}", True
    answered = [*messages, {"role": "assistant", "content": lesson.answer}]
    try:
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(answered, tokenize=False)
    except (TemplateError, ValueError) as error:
        fault = f"the base's chat template cannot render task '{lesson.task.name}' ({str(error).splitlines()[0]})"
        raise InputError(f"{fault}: choose an instruction-tuned base that takes a system message") from None
    if not whole.startswith(prompt):
        raise InputError("the base's chat template changes a question after its answer: choose another base")
    return prompt, whole.removeprefix(prompt), False
