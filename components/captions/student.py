"""Train a student: a LoRA adapter of SmolLM2 on the hand-written teacher sets.

ParaCLIP (section 3) instruction-tuned its local LLM on a stronger teacher's paraphrases; this is the
same recipe at this world's size. A student learns the tasks that params.yaml gives its folder as `adapter`.

    python -m components.captions.student --output components/captions/assets/student_edits
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch
import typer
from more_itertools import chunked
from torch import Tensor
from torch.nn import functional as F

from components.captions.language_model import (
    BASE_NAME,
    LanguageModel,
    bf16_is_native,
    load_language_model,
    revision_of,
)
from components.captions.teacher import Lesson, read_lessons
from components.errors import InputError, run_command
from components.files import atomic_folder, file_hash
from components.progress import bar
from components.settings import Synthesize, load_settings

ASSETS = Path("components/captions/assets")
TEACHERS = (ASSETS / "teacher.tsv", ASSETS / "teacher_edits.tsv")
_IGNORED, _BLOCK, _LENGTH_STEP = -100, 16, 32
Example = tuple[list[int], int]
"""Token ids of prompt and answer, and how many of them are the prompt's."""


def train_student(
    output: Path, lessons: dict[Path, list[Lesson]], epochs: int, lr: float, batch_size: int, rank: int, seed: int
) -> None:
    """Write `adapter_model.safetensors`, `adapter_config.json` and `student.json` to `output`.

    `lessons` holds what each teacher set teaches.
    """
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    # The frozen weights never change, so they are kept as they are multiplied; peft keeps the adapter's in float32.
    language_model = load_language_model(None, torch.bfloat16 if bf16_is_native() else torch.float32)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    model = get_peft_model(language_model.model, config)
    examples = [_example(language_model, lesson) for learnt in lessons.values() for lesson in learnt]
    random.Random(seed).shuffle(examples)
    held_out, examples = examples[: len(examples) // 20], examples[len(examples) // 20 :]
    before = _mean_loss(model, held_out, batch_size)
    _fit(model, examples, epochs, lr, batch_size, seed)
    after = _mean_loss(model, held_out, batch_size)
    print(f"held-out loss per token: {before:.3f} before, {after:.3f} after ({len(held_out)} examples)")
    with atomic_folder(output) as folder:
        model.to(torch.bfloat16).save_pretrained(str(folder))
        (folder / "README.md").unlink(missing_ok=True)
        _name_the_base(folder / "adapter_config.json")
        provenance = {
            "base": revision_of(None),
            "teacher_sha256": {path.name: file_hash(path) for path, learnt in lessons.items() if learnt},
            "tasks": sorted({lesson.task.name for learnt in lessons.values() for lesson in learnt}),
            "examples": len(examples),
            "settings": {"epochs": epochs, "lr": lr, "batch_size": batch_size, "rank": rank, "seed": seed},
            "held_out_loss": {"before": round(before, 4), "after": round(after, 4)},
            "date": datetime.now(UTC).date().isoformat(),
        }
        (folder / "student.json").write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")


def _name_the_base(path: Path) -> None:
    """Replace the folder that peft noted down, which exists on this machine alone, by the base model's name."""
    config = json.loads(path.read_text("utf-8"))
    config["base_model_name_or_path"] = BASE_NAME
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def tasks_of(adapter: Path, synthesize: Synthesize) -> list[str]:
    """The tasks that `adapter` answers.

    Raises:
        InputError: there is none.
    """
    given = {name: synthesize.adapter_of(asked) for name, asked in synthesize.tasks.items()}
    tasks = [name for name, other in given.items() if other is not None and other.resolve() == adapter.resolve()]
    if not tasks:
        raise InputError(f"params.yaml: no task of synthesize.tasks has the adapter {adapter}: name it there first")
    return tasks


def _example(language_model: LanguageModel, lesson: Lesson) -> Example:
    tokenizer, messages = language_model.tokenizer, lesson.task.messages(lesson.inputs)
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt)["input_ids"]
    return prompt_ids + tokenizer(f"{lesson.answer}<|im_end|>\n")["input_ids"], len(prompt_ids)


def batches_of_like_length(examples: list[Example], batch_size: int, rng: random.Random) -> list[list[Example]]:
    """Whole batches in random order, drawn so that little is spent on padding; the rest of the examples is left out.

    Sorting only within blocks of some batches keeps the batches of every epoch different.
    """
    order, block = rng.sample(examples, len(examples)), _BLOCK * batch_size
    blocks = (
        sorted(order[start : start + block], key=lambda example: len(example[0]))
        for start in range(0, len(order), block)
    )
    batches = [batch for chosen in blocks for batch in chunked(chosen, batch_size) if len(batch) == batch_size]
    return rng.sample(batches, len(batches))


def _batch(examples: list[Example]) -> tuple[Tensor, Tensor, Tensor]:
    # On a CPU every new shape costs seconds of kernel building, far more than some padding.
    longest = -(-max(len(ids) for ids, _ in examples) // _LENGTH_STEP) * _LENGTH_STEP
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, _IGNORED)
    mask = torch.zeros_like(ids)
    for row, (tokens, prompt) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, prompt : len(tokens)] = ids[row, prompt : len(tokens)]
        mask[row, : len(tokens)] = 1
    return ids, labels, mask


def _loss(model: torch.nn.Module, examples: list[Example]) -> Tensor:
    """Mean cross-entropy of the answers' tokens; the vocabulary is scored at these alone, it is most of the work."""
    ids, labels, mask = _batch(examples)
    language_model = model.get_base_model()  # type: ignore[operator]
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16_is_native()):
        states = language_model.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
        wanted = labels[:, 1:]
        scores = language_model.lm_head(states[wanted != _IGNORED])
    return F.cross_entropy(scores.float(), wanted[wanted != _IGNORED])


def _fit(model: torch.nn.Module, examples: list[Example], epochs: int, lr: float, batch_size: int, seed: int) -> None:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    steps = epochs * (len(examples) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.1)
    rng = random.Random(seed)
    model.train()
    with bar("student", steps * batch_size, "example") as progress:
        for _ in range(epochs):
            for batch in batches_of_like_length(examples, batch_size, rng):
                loss = _loss(model, batch)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()
                schedule.step()
                progress.set_postfix(loss=f"{loss.item():.3f}")
                progress.update(batch_size)


@torch.no_grad()
def _mean_loss(model: torch.nn.Module, examples: list[Example], batch_size: int) -> float:
    model.eval()
    starts = range(0, len(examples), batch_size)
    return sum(_loss(model, examples[start : start + batch_size]).item() for start in starts) / len(starts)


def main(
    output: Annotated[Path, typer.Option(help="The adapter's folder; it learns the tasks that name it.")] = ASSETS
    / "student",
    teacher: Annotated[list[Path] | None, typer.Option(help="A teacher set, instead of those in assets.")] = None,
    epochs: int = 4,
    lr: float = 1e-3,
    batch_size: int = 16,
    rank: int = 8,
    seed: int = 0,
) -> None:
    """Train a LoRA student of SmolLM2 on the teacher sets."""

    def command() -> None:
        tasks = tasks_of(output, load_settings().synthesize)
        lessons = {path: read_lessons(path, tasks) for path in teacher or TEACHERS}
        train_student(output, lessons, epochs, lr, batch_size, rank, seed)

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
