"""Trains a LoRA adapter on lessons with trl's `SFTTrainer`: loss on the answers' tokens, resumable, on any ranks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from huggingface_hub import constants
from jinja2 import TemplateError
from peft import LoraConfig
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from components.captions.prompting.request import COMPLETION
from components.captions.students.lessons import Lesson, chat_of
from components.core.compute.devices import bf16_is_native
from components.core.compute.distributed import World
from components.core.settings import Student
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.encoders.language_models.language_model import LanguageModel

if TYPE_CHECKING:
    from components.captions.students.train import StudentJob

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
