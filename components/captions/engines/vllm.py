"""vLLM offline in its own environment: one process per visible GPU, each handed the next block when it is free."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from more_itertools import batched
from pydantic import Field, PositiveInt, field_validator

from components.captions.endpoints.call import message_of
from components.captions.local_model.weights import Weights, find_weights
from components.captions.request import Reply, Request, Said
from components.captions.vllm.process import Inbox, Line, Worker, device_groups, start_workers
from components.core.errors import InputError
from components.core.files import content_hash
from components.core.settings import Block

_AHEAD = 2
"""Blocks that a worker has at a time, so that it need not wait while replies are stored and prompts rendered."""
_POLL_S = 5.0
"""How often workers that say nothing are looked at, in seconds."""
_CPU = {"enforce_eager": True, "kv_cache_memory_bytes": 4 << 30}
"""Arguments on a machine without GPUs, where vLLM would take nearly all memory and compile for minutes."""


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
    processes: PositiveInt | None = None
    """One per visible GPU when not given, one on a machine without."""
    block: PositiveInt = 512
    """Rows handed to a worker at a time. They are stored when their block ends, so a CPU wants few."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """More arguments of `vllm.LLM`, such as gpu_memory_utilization or tensor_parallel_size (GPUs per process)."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """What the chat template is told, such as `enable_thinking: false`; part of every key of the store."""
    log: Path | None = None
    """A folder for the workers' logs; a dead worker's last error is told without it too."""

    @field_validator("arguments")
    @classmethod
    def _not_given_twice(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if twice := sorted(arguments.keys() & cls.model_fields.keys()):
            raise ValueError(f"{', '.join(twice)} belongs beside `arguments`, not below it")
        return arguments


class VllmEngine:
    """Workers that load the model at the first request and end with the last."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @cached_property
    def _weights(self) -> Weights:
        return find_weights(self._options.model, self._options.revision)

    @cached_property
    def model(self) -> str:
        """Name and revision or a hash of a folder's weights, and a hash of what the chat template is told."""
        told = self._options.chat_template_kwargs
        return self._weights.label + (f"+{content_hash(json.dumps(told, sort_keys=True))[:8]}" if told else "")

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield the replies of blocks as they end.

        A row is drawn with a seed of its own, from its key; on a CPU, where vLLM has none, with the worker's.

        Raises:
            InputError: the environment or the model is missing, there are too few GPUs, or a worker died.
        """
        blocks = batched(requests, self._options.block)
        first = next(blocks, None)
        if first is None:
            return
        given, inbox = self._options.arguments, Inbox()
        per_process = int(given.get("tensor_parallel_size", 1)) * int(given.get("pipeline_parallel_size", 1))
        groups = device_groups(self._options.processes, per_process)
        with start_workers(self._options.python, groups, self._options.log, inbox) as workers:
            for number, worker in enumerate(workers):
                worker.send(self._load(groups[number] is None, _seed(first[0], 28) + number))
            yield from _deal(workers, inbox, chain([first], blocks), self._options.block)

    def _load(self, cpu: bool, seed: int) -> dict[str, Any]:
        """The first message to a worker: the arguments of `vllm.LLM`, and what its method `chat` is given."""
        options, weights = self._options, self._weights
        arguments = {
            "seed": seed,
            **(_CPU if cpu else {}),
            **options.arguments,
            "model": str(Path(weights.source).absolute()) if weights.folder else weights.source,
            "revision": weights.commit,
            "dtype": options.dtype,
            "max_model_len": options.max_model_len,
        }
        return {"arguments": arguments, "chat": {"chat_template_kwargs": options.chat_template_kwargs}}


def _deal(workers: list[Worker], inbox: Inbox, blocks: Iterator[Sequence[Request]], size: int) -> Iterator[list[Reply]]:
    again = _Again(size)
    mixed = again.mixed_into(blocks)
    while True:
        # Nobody gets a second block before everybody has a first.
        for depth in range(_AHEAD):
            for worker in workers:
                if len(worker.blocks) == depth and (block := next(mixed)) is not None:
                    worker.blocks.append(block)
                    worker.send([_row(request) for request in block])
        if not any(worker.blocks for worker in workers):
            return
        worker, line = _next_line(workers, inbox)
        replies = again.replies(worker.blocks.popleft(), line)
        if replies:
            yield replies


class _Again:
    """Questions whose answers lacked their end: each is asked once more, with more tokens, in blocks of their own."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: list[Request] = []
        self._first: dict[str, Request] = {}

    def mixed_into(self, blocks: Iterator[Sequence[Request]]) -> Iterator[Sequence[Request] | None]:
        """A full block of waiting ones first, then the others, then what waits; None while nothing does."""
        while True:
            block = None if len(self._waiting) >= self._size else next(blocks, None)
            if block is None and self._waiting:
                block, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            yield block

    def replies(self, block: Sequence[Request], line: Line) -> list[Reply]:
        """Those that are settled.

        Raises:
            InputError: the worker refuses every row for the same reason.
        """
        longer = block[0].key in self._first
        failures = {row.get("failure") for row in line}
        if not longer and len(block) > 1 and len(failures) == 1 and (failure := failures.pop()) is not None:
            raise InputError(
                f"engine 'vllm' can answer nothing ({failure}): correct the model's settings in params.yaml"
            )
        settled = []
        for asked, row in zip(block, line, strict=True):
            request = self._first.pop(asked.key, asked)
            if "answer" not in row:
                settled.append(Reply(request, None, row.get("failure")))
                continue
            said = Said(row["answer"].replace("\0", "").strip(), row["cut"])
            if not longer and request.lacks_its_end(said):
                self._first[request.longer.key] = request
                self._waiting.append(request.longer)
            else:
                settled.append(Reply.of(request, said, asked.sampling.max_tokens))
        return settled


def _next_line(workers: list[Worker], inbox: Inbox) -> tuple[Worker, Line]:
    while True:
        try:
            worker, line = inbox.get(timeout=_POLL_S)
        except queue.Empty:
            # Its end shows in the inbox, unless a child of its own holds its output open.
            dead = [worker for worker in workers if worker.process.poll() is not None]
            if dead:
                raise dead[0].fault() from None
            continue
        if line is None:
            raise worker.fault()
        return worker, line


def _row(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    _, body = message_of(request, "")
    asked: dict[str, Any] = {name: body[name] for name in ("messages", "prompt") if name in body}
    drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": sampling.max_tokens}
    return asked | {"sampling": drawn, "seed": _seed(request, 60)}


def _seed(request: Request, bits: int) -> int:
    return int(request.key, 16) >> (256 - bits)


def make(options: Options) -> VllmEngine:
    """The engine that params.yaml describes."""
    return VllmEngine(options)
