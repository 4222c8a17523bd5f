"""vLLM in its own environment, started here for as long as there are questions, with a copy of the model per GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from more_itertools import spy
from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from components.captions.endpoints.addresses import Endpoints, Limits
from components.captions.endpoints.call import open_client, seed_of
from components.captions.endpoints.flow import flow
from components.captions.endpoints.vllm_process import VllmProcess, serve
from components.captions.local_model.weights import Weights, find_weights
from components.captions.request import Reply, Request
from components.core.errors import InputError
from components.core.files import content_hash
from components.core.settings import Block

_OWN = frozenset({"api_key", "default_chat_template_kwargs", "host", "port", "served_model_name", "uds"})
"""Flags of `vllm serve` that the engine sets itself, or whose defaults it builds on."""
_ALWAYS = {"generation_config": "vllm", "uvicorn_log_level": "warning"}
"""What is drawn from is told by the task's sampling alone, not by the model's own defaults, such as a `top_k`."""
_SAME_ANSWERS = frozenset({
    "api_server_count", "block_size", "cpu_offload_gb", "data_parallel_size", "disable_log_stats", "download_dir",
    "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager", "gpu_memory_utilization",
    "kv_cache_memory_bytes", "load_format", "max_num_batched_tokens", "max_num_seqs", "max_parallel_loading_workers",
    "pipeline_parallel_size", "swap_space", "tensor_parallel_size",
})  # fmt: skip
"""Flags of speed and memory; any other, such as `quantization`, is part of every key of the store."""
_CPU = {"enforce_eager": True, "kv_cache_memory_bytes": 4 << 30}
"""Flags on a machine without GPUs, where vLLM would take nearly all memory and compile for minutes."""


class Options(Block):
    """Settings of the vllm engine."""

    model: str
    """A Hugging Face folder or name, see `components.students.save_model` for SmolLM2 and its students."""
    revision: str | None = None
    """Commit or tag of a name; what the Hugging Face cache holds when not given."""
    python: Path = Path(".venv-llm/bin/python")
    """The interpreter of vLLM's environment, which `make llm-server` makes."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: PositiveInt | None = None
    """Tokens of prompt and answer; the model's own limit when not given."""
    concurrency: PositiveInt = 256
    """Requests in flight at each copy of the model."""
    wait_s: PositiveFloat = 3600.0
    """How long loading the model may take, and how long an answer; the run stops when none has come for so long."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """More flags of `vllm serve`, such as gpu_memory_utilization, tensor_parallel_size (GPUs that share one copy of the
    model) or data_parallel_size (copies; as many as the visible GPUs hold when not given)."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """What the chat template is told, such as `enable_thinking: false`; part of every key of the store."""
    log: Path | None = None
    """A folder for vLLM's log; its last error is told without it too."""

    @field_validator("arguments")
    @classmethod
    def _not_given_twice(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        arguments = {name.replace("-", "_"): value for name, value in arguments.items()}
        if twice := sorted(arguments.keys() & cls.model_fields.keys()):
            raise ValueError(f"{', '.join(twice)} belongs beside `arguments`, not below it")
        if own := sorted(arguments.keys() & _OWN):
            raise ValueError(f"{', '.join(own)} is set by the engine itself: remove it")
        return arguments


@dataclass(frozen=True)
class VllmEngine:
    """Starts vLLM at the first request and ends it with the last."""

    options: Options

    @cached_property
    def _weights(self) -> Weights:
        return find_weights(self.options.model, self.options.revision)

    @cached_property
    def model(self) -> str:
        """Name and revision or a hash of a folder's weights, and hashes of the options that change what it answers."""
        told, given = self.options.chat_template_kwargs, self.options.arguments
        computed = {name: value for name, value in given.items() if name not in _SAME_ANSWERS}
        if self.options.dtype != "auto":
            computed["dtype"] = self.options.dtype
        hashes = [content_hash(json.dumps(found, sort_keys=True))[:8] for found in (told, computed) if found]
        return "+".join([self._weights.label, *hashes])

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield whatever has arrived, as soon as it has.

        A row is drawn with a seed of its own, from its key; on a CPU, where vLLM has none, with the first row's.

        Raises:
            InputError: the environment or the model is missing, there are too few GPUs, or vLLM died.
        """
        first, requests = spy(requests)
        if not first:
            return
        copies = _copies(self.options.arguments)
        # On a CPU vLLM would bind its threads to cores of its own choice, and other work there would halt them.
        threads = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
        flags, options = self._flags(seed_of(first[0]), copies), self.options
        with serve(options.python, flags, {} if copies else threads, options.log, options.wait_s) as vllm:
            slots = options.concurrency * max(1, copies)
            with flow(lambda: self._connect(vllm, slots, seeds=copies > 0), slots, requests) as batches:
                yield from batches

    def _connect(self, vllm: VllmProcess, slots: int, *, seeds: bool) -> Endpoints:
        wait_s = self.options.wait_s
        limits = Limits(
            model=self._source,
            concurrency=slots,
            timeout_s=wait_s,
            attempts=6,
            give_up_s=wait_s,
            seeds=seeds,
            extra={},
            key_env="VLLM_API_KEY",
        )
        return Endpoints({vllm.url: open_client(vllm.url, vllm.key, wait_s)}, limits, vllm.check)

    @property
    def _source(self) -> str:
        return str(Path(self._weights.source).absolute()) if self._weights.folder else self._weights.source

    def _flags(self, seed: int, copies: int) -> list[str]:
        """Flags of `vllm serve`; `copies` is 0 on a machine without GPUs."""
        given: dict[str, Any] = {
            "model": self._source,
            **_ALWAYS,
            "seed": seed,
            **({"data_parallel_size": copies} if copies else _CPU),
            **self.options.arguments,
            "revision": self._weights.commit,
            "dtype": self.options.dtype,
            "max_model_len": self.options.max_model_len,
            "default_chat_template_kwargs": self.options.chat_template_kwargs or None,
        }
        return [part for name, value in given.items() for part in _flag(name, value)]


def _flag(name: str, value: Any) -> list[str]:
    """A flag as `vllm serve` reads it; none for None."""
    dashed = name.replace("_", "-")
    match value:
        case None:
            return []
        case bool():
            return [f"--{dashed}" if value else f"--no-{dashed}"]
        case list():
            return [f"--{dashed}", *map(_text, value)]
        case _:
            return [f"--{dashed}={_text(value)}"]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _copies(arguments: dict[str, Any]) -> int:
    """How many copies of the model the visible GPUs are to hold; 0 on a machine without.

    Raises:
        InputError: there are too few for one.
    """
    import torch

    count = torch.cuda.device_count()
    per_copy = int(arguments.get("tensor_parallel_size", 1)) * int(arguments.get("pipeline_parallel_size", 1))
    if 0 < count < per_copy:
        raise InputError(
            f"engine 'vllm' needs {per_copy} GPUs and this process sees {count}: correct the model's arguments "
            "tensor_parallel_size and pipeline_parallel_size"
        )
    return int(arguments.get("data_parallel_size", count // per_copy)) if count else 0


def make(options: Options) -> VllmEngine:
    """The engine that params.yaml describes."""
    return VllmEngine(options)
