"""What all prompts of a batch begin with goes through a language model once: a task's demonstrations stand first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from more_itertools import longest_common_prefix

_WORTH = 32
"""Tokens that must be shared; below, copying the cache costs what it saves."""


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
