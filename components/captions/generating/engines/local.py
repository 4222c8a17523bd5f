"""Engine `local`: a language model in this process, batched by length, with a seed per answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from more_itertools import batched, longest_common_prefix
from pydantic import PositiveInt
from torch import Tensor

from components.captions.prompting.request import ModelAnswer, Reply, Request, Sampling
from components.core.compute.devices import bf16_is_native, pick_device
from components.core.settings import Block
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.encoders.language_models.language_model import LanguageModel, load_language_model, revision_of

_CANDIDATES = 64
"""Tokens that sampling considers; the nucleus of a caption is far smaller."""
_WINDOW = 16
"""Batches among which requests are sorted by length."""
_WORTH = 32
"""Tokens that prompts must share; below, copying the cache costs as much as it saves."""


class EmbeddedOptions(Block):
    """Settings of the engine `local`."""

    adapter: Path | None = None
    """A LoRA adapter (safetensors and JSON); the base model answers without it."""
    base: str | None = None
    """A Hugging Face folder or name, or a GGUF file; SmolLM2-135M-Instruct from its package when not given."""
    base_sha256: str | None = None
    """Hash of the GGUF file; a file with another hash is refused."""
    batch_size: PositiveInt = 64


@dataclass
class LocalEngine:
    """SmolLM2 or another base, with or without an adapter; loaded at the first request."""

    options: EmbeddedOptions
    _loaded: LanguageModel | None = None

    @cached_property
    def model(self) -> str:
        """Package version or the base's name and revision, and the adapter's hash."""
        base, wanted = self.options.base, self.options.base_sha256
        if wanted is not None and (base is None or not Path(base).is_file() or file_hash(Path(base)) != wanted):
            raise InputError(
                f"{base} is not the file with SHA-256 {wanted[:12]}...: fetch it again, or correct base_sha256"
            )
        return revision_of(self.options.adapter, self.options.base)

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield batches of replies, requests of similar length together."""
        for window in batched(requests, _WINDOW * self.options.batch_size):
            if any(request.pictures for request in window):
                raise InputError(
                    f"engine 'local' reads only text and task '{window[0].task}' shows pictures: set its "
                    "`pictures` to false, or let a model with engine 'server' or 'vllm' answer it"
                )
            if self._loaded is None:
                dtype = torch.bfloat16 if bf16_is_native(pick_device("auto")) else torch.float32
                self._loaded = load_language_model(self.options.adapter, dtype, self.options.base)
            prompts = [self._prompt(self._loaded, request) for request in window]
            order = sorted(range(len(window)), key=lambda row: (window[row].sampling.json, len(prompts[row])))
            for rows in batched(order, self.options.batch_size):
                for sampling in dict.fromkeys(window[row].sampling for row in rows):
                    chosen = [row for row in rows if window[row].sampling == sampling]
                    yield self._replies([window[row] for row in chosen], [prompts[row] for row in chosen])

    def _replies(self, requests: list[Request], prompts: list[list[int]]) -> list[Reply]:
        """Answers to requests of one sampling; those that lack their end are generated once more, with more tokens."""
        answers, tokens = self._generate(requests, prompts, requests[0].sampling), requests[0].sampling.max_tokens
        replies = [Reply.of(request, answer, tokens) for request, answer in zip(requests, answers, strict=True)]
        cut = [row for row, request in enumerate(requests) if request.lacks_its_end(answers[row])]
        if cut:
            more = requests[0].longer.sampling
            longer = self._generate([requests[row] for row in cut], [prompts[row] for row in cut], more)
            for row, answer in zip(cut, longer, strict=True):
                replies[row] = Reply.of(requests[row], answer, more.max_tokens)
        return replies

    @staticmethod
    def _prompt(loaded: LanguageModel, request: Request) -> list[int]:
        tokenizer, text = loaded.tokenizer, request.completion
        if text is not None:
            encoded = tokenizer(text)
        else:
            rendered = tokenizer.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
            # The template has written the special tokens already; some tokenizers would put a second one in front.
            encoded = tokenizer(rendered, add_special_tokens=False)
        ids: list[int] = encoded["input_ids"]
        return ids

    @torch.inference_mode()
    def _generate(self, requests: list[Request], prompts: list[list[int]], sampling: Sampling) -> list[ModelAnswer]:
        assert self._loaded is not None
        tokenizer, model = self._loaded.tokenizer, self._loaded.model
        shared = shared_length(prompts)
        inputs = (
            shared_inputs(model, tokenizer, prompts, shared)
            if shared
            else tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        )
        # Greedy search over scores that the processor reduced to the drawn token: generate() itself has one
        # random stream for the whole batch, so a row's answer would depend on its neighbours.
        output = model.generate(
            **{name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in inputs.items()},
            do_sample=False,
            max_new_tokens=sampling.max_tokens,
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
            logits_processor=[_RowSampler(sampling, [request.key for request in requests])],
        )
        new = output[:, inputs["input_ids"].shape[1] :]
        answers: list[str] = tokenizer.batch_decode(new, skip_special_tokens=True)
        # An answer that ended has an end token, and padding after it if others in the batch are longer.
        ends = model.generation_config.eos_token_id
        listed = {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id, tokenizer.pad_token_id}
        final = torch.tensor([token for token in listed if token is not None], device=new.device)
        full, ended = new.shape[1] == sampling.max_tokens, torch.isin(new[:, -1], final).tolist()
        return [ModelAnswer(answer.strip(), full and not over) for answer, over in zip(answers, ended, strict=True)]


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


def shared_length(prompts: Sequence[list[int]]) -> int:
    """How many first tokens all prompts share, at least one token of each left over; 0 where sharing does not pay."""
    if len(prompts) < 2:
        return 0
    common = len(list(longest_common_prefix(prompts)))
    length = min(common, min(map(len, prompts)) - 1)
    return length if length >= _WORTH else 0


def shared_inputs(model: Any, tokenizer: Any, prompts: Sequence[list[int]], shared: int) -> dict[str, Any]:
    """Inputs of `generate` for a batch whose first `shared` tokens are the same: padding stands behind these.

    Returns `input_ids` and `attention_mask` `[prompts, longest]`, and the shared part's keys and values for every row.
    """
    rest = tokenizer.pad({"input_ids": [prompt[shared:] for prompt in prompts]}, return_tensors="pt")
    first = torch.tensor([prompts[0][:shared]])
    cache = model(input_ids=first.to(model.device), use_cache=True).past_key_values
    cache.batch_repeat_interleave(len(prompts))
    ids = torch.cat([first.expand(len(prompts), -1), rest["input_ids"]], dim=1)
    mask = torch.cat([torch.ones(len(prompts), shared, dtype=torch.long), rest["attention_mask"]], dim=1)
    return {"input_ids": ids, "attention_mask": mask, "past_key_values": cache}


ENGINE = (EmbeddedOptions, LocalEngine)
