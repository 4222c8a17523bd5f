"""Train the student: a LoRA adapter of SmolLM2 on the hand-written teacher set.

ParaCLIP (section 3) instruction-tuned its local LLM on a stronger teacher's paraphrases; this is the
same recipe at this world's size.

    python -m components.captions.student --epochs 3
"""

from __future__ import annotations

import csv
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from components.captions.language_model import (
    BASE_NAME,
    LanguageModel,
    bf16_is_native,
    load_language_model,
    revision_of,
)
from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.errors import run_command
from components.files import atomic_folder, file_hash
from components.progress import bar

ASSETS = Path(__file__).parent / "assets"
_IGNORED = -100
Example = tuple[list[int], int]
"""Token ids of prompt and answer, and how many of them are the prompt's."""


def train_student(output: Path, teacher: Path, epochs: int, lr: float, batch_size: int, rank: int, seed: int) -> None:
    """Write `adapter_model.safetensors`, `adapter_config.json` and `student.json` to `output`."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    language_model = load_language_model(None, torch.float32)
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear")
    model = get_peft_model(language_model.model, config)
    examples = _examples(language_model, teacher)
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
            "teacher_sha256": file_hash(teacher),
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


def _examples(language_model: LanguageModel, teacher: Path) -> list[Example]:
    first, second = find_task("paraphrase_1"), find_task("paraphrase_2")
    with teacher.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    examples = []
    for row in rows:
        examples.append(_example(language_model, first, row["caption"], row["paraphrase_1"]))
        examples.append(_example(language_model, second, row["paraphrase_1"], row["paraphrase_2"]))
    return examples


def _example(language_model: LanguageModel, task: PromptTask, text: str, answer: str) -> Example:
    tokenizer = language_model.tokenizer
    prompt = tokenizer.apply_chat_template(task.messages(text), tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt)["input_ids"]
    return prompt_ids + tokenizer(f"{answer}<|im_end|>\n")["input_ids"], len(prompt_ids)


def _batch(examples: list[Example]) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(ids) for ids, _ in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, _IGNORED)
    mask = torch.zeros_like(ids)
    for row, (tokens, prompt) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, prompt : len(tokens)] = ids[row, prompt : len(tokens)]
        mask[row, : len(tokens)] = 1
    return ids, labels, mask


def _loss(model: torch.nn.Module, examples: list[Example]) -> Tensor:
    ids, labels, mask = _batch(examples)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16_is_native()):
        loss: Tensor = model(input_ids=ids, labels=labels, attention_mask=mask).loss
    return loss


def _fit(model: torch.nn.Module, examples: list[Example], epochs: int, lr: float, batch_size: int, seed: int) -> None:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    steps = epochs * (len(examples) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.1)
    rng = random.Random(seed)
    model.train()
    with bar("student", steps * batch_size, "example") as progress:
        for _ in range(epochs):
            order = rng.sample(examples, len(examples))
            for start in range(0, len(order) - batch_size + 1, batch_size):
                loss = _loss(model, order[start : start + batch_size])
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
    output: Annotated[Path, typer.Option(help="Folder that the adapter is written to.")] = ASSETS / "student",
    teacher: Annotated[Path, typer.Option(help="TSV of caption, paraphrase_1, paraphrase_2.")] = ASSETS / "teacher.tsv",
    epochs: int = 4,
    lr: float = 1e-3,
    batch_size: int = 16,
    rank: int = 8,
    seed: int = 0,
) -> None:
    """Train the LoRA student of SmolLM2 on the teacher set."""
    run_command(lambda: train_student(output, teacher, epochs, lr, batch_size, rank, seed))


if __name__ == "__main__":
    typer.run(main)
