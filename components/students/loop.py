"""The training loop of a student: LoRA on the answers' tokens, resumable, on any number of ranks.

Own code instead of transformers' Trainer, for three reasons. Any number of ranks and any size of pieces compute the
same. The vocabulary is scored only at the answers' tokens. A resumed run ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jinja2 import TemplateError
from more_itertools import chunked
from torch import Tensor
from torch.nn import functional as F

from components.captions.prompting.request import COMPLETION
from components.core.compute.checkpoint import Checkpoints, Facts, optimiser_tensors, restore_optimiser
from components.core.compute.distributed import World
from components.core.settings import Student
from components.core.system.errors import InputError
from components.core.system.progress import bar, track
from components.students.lessons import Lesson, chat_of

_WARMUP, _CLIP = 0.1, 1.0
_SHORTEST = 11
"""Steps of the shortest schedule: with a tenth of ten steps as warm-up OneCycleLR divides by zero."""

Report = Callable[[dict[str, float], int], None]
"""Takes a step's metrics and its number, from 1."""


@dataclass(frozen=True)
class Place:
    """Where a student is trained; it changes results only by rounding. Without `autocast` it computes in float32."""

    world: World = field(default_factory=World)
    device: str = "cpu"
    autocast: torch.dtype | None = None


def add_adapter(model: Any, rank: int, seed: int) -> Any:
    """`model` with a new LoRA adapter on all linear layers, the only trained part; peft keeps it in float32."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))


def fit(
    title: str,
    model: Any,
    examples: Sequence[EncodedLesson],
    plan: Student,
    place: Place,
    checkpoints: Checkpoints,
    report: Report,
) -> int:
    """Train the adapter to the end, from the newest checkpoint where there is one; returns the number of steps."""
    share = place.world.share(plan.batch_size)
    if len(examples) < plan.batch_size:
        raise InputError(f"{title}: {len(examples)} lessons make no batch of {plan.batch_size}: lower batch_size")
    # Only the order may be random, so that resumed runs and other numbers of ranks compute the same.
    model.eval()
    run = _Run(model, examples, plan, place)
    with checkpoints.held() if place.world.leads else nullcontext():
        checkpoints.resume(run.restore)
        shown = bar(title, run.total * plan.batch_size, "lesson", run.step * plan.batch_size)
        with shown if place.world.leads else nullcontext() as progress:
            while run.step < run.total:
                done = run.advance(run.next_batch(), share)
                if progress is not None:
                    progress.set_postfix(loss=f"{done['train/loss']:.3f}", refresh=False)
                    progress.update(plan.batch_size)
                if not math.isfinite(done["train/loss"]):
                    raise InputError(f"{title}: the loss is not finite at step {run.step}: lower lr")
                report(done, run.step)
                if run.step % plan.checkpoint_every == 0 or run.step == run.total:
                    if place.world.leads:
                        checkpoints.save(run.facts(), run.tensors())
                    place.world.wait()
    return run.total


class _Run:
    """State of a training run."""

    def __init__(self, model: Any, examples: Sequence[EncodedLesson], plan: Student, place: Place) -> None:
        self.step, self.total = 0, plan.epochs * (len(examples) // plan.batch_size)
        self._model, self._examples, self._plan, self._place = model, examples, plan, place
        self._adapter = {name: weights for name, weights in model.named_parameters() if weights.requires_grad}
        self._optimiser = torch.optim.AdamW(self._adapter.values(), lr=plan.lr, weight_decay=0.0)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimiser, plan.lr, total_steps=max(self.total, _SHORTEST), pct_start=_WARMUP
        )
        self._order = random.Random(plan.seed)
        self._epoch: list[list[EncodedLesson]] = []
        self._epoch_began: Any = None

    def next_batch(self) -> list[EncodedLesson]:
        """The next batch of all ranks together; a new epoch is drawn where the last is over."""
        place = self.step % (len(self._examples) // self._plan.batch_size)
        if place == 0 or not self._epoch:
            self._epoch_began = self._order.getstate()
            self._epoch = batches_of_like_length(self._examples, self._plan.batch_size, self._order)
        return self._epoch[place]

    def advance(self, batch: list[EncodedLesson], share: int) -> dict[str, float]:
        """One optimisation step, of which this rank computes `share` rows; returns its metrics."""
        world = self._place.world
        tokens = answer_tokens(batch)
        own = batch[world.rank * share : (world.rank + 1) * share]
        self._optimiser.zero_grad()
        loss = torch.zeros((), device=self._place.device)
        for piece in chunked(own, self._plan.micro_batch or share):
            # The mean is over the global batch's tokens, of which ranks and pieces have more or fewer.
            part = answer_loss(self._model, piece, self._place) * (answer_tokens(piece) * world.size / tokens)
            part.backward()  # type: ignore[no-untyped-call]
            loss += part.detach()
        self._average()
        world.average([loss])
        norm = torch.nn.utils.clip_grad_norm_(self._adapter.values(), _CLIP)
        lr = self._optimiser.param_groups[0]["lr"]
        self._optimiser.step()
        self._schedule.step()
        self.step += 1
        return {"train/loss": loss.item(), "train/lr": lr, "train/gradient_norm": float(norm)}

    def _average(self) -> None:
        """Average gradients over ranks, all in one exchange."""
        if self._place.world.size == 1:
            return
        gradients = [weights.grad for weights in self._adapter.values() if weights.grad is not None]
        together = torch.nn.utils.parameters_to_vector(gradients)
        self._place.world.average([together])
        torch.nn.utils.vector_to_parameters(together, gradients)

    def facts(self) -> Facts:
        """The values of a checkpoint besides tensors."""
        group = self._optimiser.param_groups[0]
        return {"step": self.step, "lr": group["lr"], "betas": group["betas"], "epoch_began": self._epoch_began}

    def tensors(self) -> dict[str, Tensor]:
        """Adapter and optimiser."""
        return {f"adapter.{name}": weights for name, weights in self._adapter.items()} | optimiser_tensors(
            self._optimiser
        )

    @torch.no_grad()
    def restore(self, facts: Facts, tensors: dict[str, Tensor]) -> None:
        """Resume from a checkpoint."""
        for name, weights in self._adapter.items():
            weights.copy_(tensors[f"adapter.{name}"])
        restore_optimiser(self._optimiser, tensors)
        self.step = self._schedule.last_epoch = facts["step"]
        for group in self._optimiser.param_groups:
            group.update(lr=facts["lr"], betas=tuple(facts["betas"]))
        version, internal, gauss = facts["epoch_began"]
        self._order.setstate((version, tuple(internal), gauss))
        if self.step % (len(self._examples) // self._plan.batch_size) == 0:
            # That epoch is over; drawing it again advances the random state to the next one.
            batches_of_like_length(self._examples, self._plan.batch_size, self._order)


def answer_loss(model: Any, examples: Sequence[EncodedLesson], place: Place) -> Tensor:
    """Mean cross-entropy of the answers' tokens, `[]`; the vocabulary is scored at these alone.

    Scoring every token would be most of the work.
    """
    batch = padded(examples, place.device)
    wanted = batch.labels[:, 1:]
    chosen = wanted != IGNORED
    with _mixed(place):
        scores = _scores(model.get_base_model(), batch.ids, batch.mask, chosen)
    return F.cross_entropy(scores.float(), wanted[chosen])


def _scores(model: Any, ids: Tensor, mask: Tensor, chosen: Tensor) -> Tensor:
    """Scores of the vocabulary after the tokens `chosen` (`[rows, length - 1]`), `[chosen, vocabulary]`."""
    decoder = getattr(model, model.base_model_prefix)
    states = decoder(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
    scores: Tensor = model.get_output_embeddings()(states[chosen])
    return scores


@torch.no_grad()
def check_scores(model: Any, examples: Sequence[EncodedLesson], place: Place) -> None:
    """Refuse a model whose scores are more than its last layer's."""
    batch = padded(examples[:1], place.device)
    chosen = batch.labels[:, 1:] != IGNORED
    with _mixed(place):
        own = _scores(model.get_base_model(), batch.ids, batch.mask, chosen)
        whole = model.get_base_model()(input_ids=batch.ids, attention_mask=batch.mask).logits[:, :-1][chosen]
    if (own - whole).float().norm() > 0.01 * whole.float().norm():
        raise InputError("the base changes its scores after the last layer: choose a model such as Llama or Qwen")


@torch.no_grad()
def mean_loss(model: Any, examples: Sequence[EncodedLesson], batch_size: int, place: Place) -> float:
    """Loss per token on `examples`, the mean over batches; ranks share the batches."""
    world, batches = place.world, list(chunked(examples, batch_size))
    own = [answer_loss(model, batch, place).item() for batch in batches[world.rank :: world.size]]
    found = torch.tensor([sum(own), float(len(own))], dtype=torch.float64, device=place.device)
    world.average([found])
    return float(found[0] / found[1])


def _mixed(place: Place) -> Any:
    return torch.autocast(place.device.split(":")[0], place.autocast, enabled=place.autocast is not None)


IGNORED = -100
_BLOCK, _LENGTH_STEP, _TOGETHER = 16, 32, 1000


class EncodedLesson(NamedTuple):
    """Token ids of prompt and answer, and how many of them are the prompt's."""

    ids: npt.NDArray[np.int32]
    prompt: int


class LessonBatch(NamedTuple):
    """Token ids, labels (`IGNORED` everywhere but at the answers) and attention mask, `[rows, length]` each."""

    ids: Tensor
    labels: Tensor
    mask: Tensor


def encode(tokenizer: Any, lessons: Sequence[Lesson], *, shown: bool = True) -> list[EncodedLesson]:
    """The lessons as token ids: the question as engines render it, then the answer and its end token."""
    blocks = list(chunked(lessons, _TOGETHER))
    return [
        example
        for block in (track(blocks, "tokens", len(blocks), "block") if shown else blocks)
        for example in _examples(tokenizer, [_texts(tokenizer, lesson) for lesson in block])
    ]


def _examples(tokenizer: Any, texts: Sequence[tuple[str, str, bool]]) -> list[EncodedLesson]:
    # As in the engine: a template has already written the special tokens; a plain text needs them.
    prompts = [tokenizer(prompt, add_special_tokens=plain)["input_ids"] for prompt, _, plain in texts]
    answers = tokenizer([answer for _, answer, _ in texts], add_special_tokens=False)["input_ids"]
    return [
        EncodedLesson(np.array(prompt + answer, dtype=np.int32), len(prompt))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


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


def batches_of_like_length(
    examples: Sequence[EncodedLesson], batch_size: int, rng: random.Random
) -> list[list[EncodedLesson]]:
    """Whole batches in random order, drawn so that little is spent on padding; the rest of the examples is left out.

    Sorting only within blocks of some batches keeps the batches of every epoch different.
    """
    order, block = rng.sample(examples, len(examples)), _BLOCK * batch_size
    blocks = (
        sorted(order[start : start + block], key=lambda example: len(example.ids))
        for start in range(0, len(order), block)
    )
    batches = [batch for chosen in blocks for batch in chunked(chosen, batch_size) if len(batch) == batch_size]
    return rng.sample(batches, len(batches))


def answer_tokens(examples: Sequence[EncodedLesson]) -> int:
    """Number of answer tokens in `examples`."""
    return sum(len(example.ids) - example.prompt for example in examples)


def padded(examples: Sequence[EncodedLesson], device: str) -> LessonBatch:
    """The examples as one batch, padded on the right."""
    # On a CPU every new shape costs seconds of kernel building, far more than some padding.
    longest = -(-max(len(example.ids) for example in examples) // _LENGTH_STEP) * _LENGTH_STEP
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    mask = torch.zeros_like(ids)
    for row, (tokens, prompt) in enumerate(examples):
        ids[row, : len(tokens)] = torch.from_numpy(tokens)
        labels[row, prompt : len(tokens)] = ids[row, prompt : len(tokens)]
        mask[row, : len(tokens)] = 1
    return LessonBatch(ids.to(device), labels.to(device), mask.to(device))
