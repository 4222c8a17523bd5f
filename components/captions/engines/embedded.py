"""SmolLM2 in this process through transformers: batched by length, each answer drawn from its own seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from more_itertools import batched
from torch import Tensor

from components.captions.language_model import LanguageModel, bf16_is_native, load_language_model, revision_of
from components.captions.store import Request, Sampling
from components.settings import Synthesize, Task

_CANDIDATES = 64
"""Tokens that sampling considers; the nucleus of a caption is far smaller."""


@dataclass
class EmbeddedEngine:
    """SmolLM2 with or without an adapter; loaded at the first request."""

    adapter: Path | None
    batch_size: int
    _loaded: LanguageModel | None = None

    @cached_property
    def model(self) -> str:
        """Package version, and the adapter's hash."""
        return revision_of(self.adapter)

    def answer(self, requests: Sequence[Request]) -> Iterator[list[tuple[Request, str]]]:
        """Yield batches of answers, requests of similar length together."""
        if not requests:
            return
        if self._loaded is None:
            self._loaded = load_language_model(self.adapter, torch.bfloat16 if bf16_is_native() else torch.float32)
        prompts = [
            self._loaded.tokenizer.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
            for request in requests
        ]
        order = sorted(range(len(requests)), key=lambda row: len(prompts[row]))
        for rows in batched(order, self.batch_size):
            chosen = [requests[row] for row in rows]
            yield list(zip(chosen, self._generate(chosen, [prompts[row] for row in rows]), strict=True))

    @torch.inference_mode()
    def _generate(self, requests: list[Request], prompts: list[str]) -> list[str]:
        assert self._loaded is not None
        tokenizer, model = self._loaded.tokenizer, self._loaded.model
        sampling = requests[0].sampling
        inputs = tokenizer(prompts, return_tensors="pt", padding=True)
        # Greedy search over scores that the processor reduced to the drawn token: generate() itself has one
        # random stream for the whole batch, so a row's answer would depend on its neighbours.
        output = model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=sampling.max_tokens,
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
            logits_processor=[_RowSampler(sampling, [request.key for request in requests])],
        )
        answers: list[str] = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return [answer.strip() for answer in answers]


class _RowSampler:
    """Draws each row's next token with that row's own random numbers (temperature, then nucleus)."""

    def __init__(self, sampling: Sampling, keys: list[str]) -> None:
        self._sampling = sampling
        draws = [np.random.default_rng(int(key[:16], 16)).random(sampling.max_tokens) for key in keys]
        self._draws = torch.from_numpy(np.stack(draws)).float()
        self._position = 0

    def __call__(self, _input_ids: Any, scores: Tensor) -> Tensor:
        if self._sampling.temperature == 0:
            return scores
        values, tokens = torch.topk(scores.float() / self._sampling.temperature, _CANDIDATES, dim=-1)
        probabilities = torch.softmax(values, dim=-1)
        before = probabilities.cumsum(-1) - probabilities
        kept = probabilities * (before < self._sampling.top_p)
        cumulative = kept.cumsum(-1)
        draw = self._draws[:, self._position, None].to(scores.device) * cumulative[:, -1:]
        self._position += 1
        index = (cumulative <= draw).sum(-1, keepdim=True).clamp(max=_CANDIDATES - 1)
        chosen = tokens.gather(-1, index)
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen, 0.0)


def make(settings: Synthesize, asked: Task) -> EmbeddedEngine:
    """The engine that params.yaml describes for one task."""
    return EmbeddedEngine(settings.adapter_of(asked), settings.batch_size)
