"""Engine `vllm`: runs vLLM's server from its own environment, on a free local port, for the length of a run."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from more_itertools import spy
from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from components.captions.generating.client import LlmClient, ServerOptions
from components.captions.generating.engines.server import replies_to
from components.captions.generating.wire import seed_of
from components.captions.prompting.request import Reply, Request
from components.core.settings import Block
from components.core.system.errors import InputError
from components.core.system.processes import end, supervised
from components.core.tables.files import content_hash
from components.encoders.language_models.weights import Weights, find_weights

_OWN = frozenset({"api_key", "default_chat_template_kwargs", "host", "port", "served_model_name", "uds"})
"""Flags of `vllm serve` that the engine sets, or whose defaults it relies on."""
_ALWAYS = {"generation_config": "vllm", "uvicorn_log_level": "warning"}
"""Only the task's sampling applies, not the model's defaults such as a `top_k`."""
_SAME_ANSWERS = frozenset({
    "api_server_count", "block_size", "cpu_offload_gb", "data_parallel_size", "disable_log_stats", "download_dir",
    "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager", "gpu_memory_utilization",
    "kv_cache_memory_bytes", "load_format", "max_num_batched_tokens", "max_num_seqs", "max_parallel_loading_workers",
    "pipeline_parallel_size", "swap_space", "tensor_parallel_size",
})  # fmt: skip
"""Flags of speed and memory; any other, such as `quantization`, is part of every key of the store."""
_CPU = {"enforce_eager": True, "kv_cache_memory_bytes": 4 << 30}
"""Flags on a machine without GPUs, where vLLM would take nearly all memory and compile for minutes."""
_GRACE_S = 5.0
"""Time limit for vLLM to end after SIGTERM."""
_POLL_S = 0.5
_FAULT = re.compile(r"(?:\w*(?:Error|Exception): |Value error, )(?!.*[Ss]ee (?:root cause|stack trace))\S.*")


class VllmOptions(Block):
    """Settings of the engine `vllm`."""

    model: str
    """A Hugging Face folder or name; `captions.students.save_model` makes a folder of SmolLM2 or a student."""
    revision: str | None = None
    """Commit or tag of a name; the one in the Hugging Face cache when not given."""
    python: Path = Path(".venv-llm/bin/python")
    """Interpreter of vLLM's environment; `make llm-server` creates it."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: PositiveInt | None = None
    """Tokens of prompt and answer; the model's own limit when not given."""
    concurrency: PositiveInt = 256
    """Requests in flight per copy of the model."""
    wait_s: PositiveFloat = 3600.0
    """Time limit for loading the model, and for an answer; the run stops when none has arrived for so long."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """More flags of `vllm serve`, such as gpu_memory_utilization, tensor_parallel_size (GPUs that share one copy of the
    model) or data_parallel_size (copies; as many as the visible GPUs hold when not given)."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as `enable_thinking: false`; part of every key of the store."""
    log: Path | None = None
    """Folder for vLLM's log; the last error is reported without it too."""

    @field_validator("arguments")
    @classmethod
    def _not_given_twice(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        arguments = {name.replace("-", "_"): value for name, value in arguments.items()}
        if twice := sorted(arguments.keys() & cls.model_fields.keys()):
            raise ValueError(f"{', '.join(twice)} belongs next to `arguments`, not below it")
        if own := sorted(arguments.keys() & _OWN):
            raise ValueError(f"{', '.join(own)} is set by the engine: remove it")
        return arguments


@dataclass(frozen=True)
class VllmEngine:
    """Starts vLLM at the first request and ends it with the last."""

    options: VllmOptions

    @cached_property
    def _weights(self) -> Weights:
        return find_weights(self.options.model, self.options.revision)

    @cached_property
    def model(self) -> str:
        """Name and revision or a hash of a folder's weights, and hashes of the options that change answers."""
        changes = {name: value for name, value in self.options.arguments.items() if name not in _SAME_ANSWERS}
        if self.options.dtype != "auto":
            changes["dtype"] = self.options.dtype
        parts = (self.options.chat_template_kwargs, changes)
        hashes = [content_hash(json.dumps(part, sort_keys=True))[:8] for part in parts if part]
        return "+".join([self._weights.label, *hashes])

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield replies as they arrive.

        Each row is sampled with a seed from its key; on a CPU, where vLLM has no seed per row, with the first row's.
        """
        first, requests = spy(requests)
        if not first:
            return
        options, copies = self.options, _copies(self.options.arguments)
        # On a CPU vLLM would bind its threads to cores, and other work on these cores would halt them.
        threads = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
        flags, slots = self._flags(seed_of(first[0]), copies), options.concurrency * max(1, copies)
        limits = {"concurrency": slots, "timeout_s": options.wait_s, "give_up_s": options.wait_s}
        with serve(options.python, flags, {} if copies else threads, options.log, options.wait_s) as vllm:
            server = ServerOptions(urls=(vllm.url,), model=self._source, seeds=copies > 0, **limits)
            yield from replies_to(requests, lambda: LlmClient(server, vllm.key, vllm.check), slots)

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
        return [part for name, value in given.items() if value is not None for part in _flag(name, value)]


def _flag(name: str, value: Any) -> list[str]:
    """A flag of `vllm serve`."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    if isinstance(value, list):
        return [f"--{dashed}", *map(_text, value)]
    return [f"--{dashed}={_text(value)}"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _copies(arguments: dict[str, Any]) -> int:
    """vLLM's `--data-parallel-size`: as many copies as the visible GPUs hold; 0 on a machine without GPUs."""
    import torch

    gpus = torch.cuda.device_count()
    per_copy = int(arguments.get("tensor_parallel_size", 1)) * int(arguments.get("pipeline_parallel_size", 1))
    return int(arguments.get("data_parallel_size", max(1, gpus // per_copy))) if gpus else 0


@dataclass(frozen=True)
class VllmProcess:
    """A running vLLM server."""

    url: str
    key: str
    _process: subprocess.Popen[bytes]
    _log: Path

    def check(self) -> None:
        """Raise `InputError` with the last error in its log if it has ended."""
        if (code := self._process.poll()) is None:
            return
        lines = [line.strip() for line in self._log.read_text("utf-8", "replace").splitlines() if line.strip()]
        faults = [match[0] for line in lines if " WARNING " not in line and (match := _FAULT.search(line))]
        reason = (faults or lines or ["no output"])[-1][:300]
        raise InputError(
            f"engine 'vllm': vLLM died with exit code {code} ({reason}): correct the model's settings in params.yaml "
            "under synthesize.llms, and run the same command again to continue"
        )

    def wait_until_up(self, within_s: float) -> None:
        """Return when the model is loaded; raises `InputError` if vLLM died, or has taken too long."""
        import httpx2

        deadline, health = time.monotonic() + within_s, self.url.removesuffix("v1") + "health"
        with httpx2.Client(trust_env=False) as client:
            while time.monotonic() < deadline:
                self.check()
                with suppress(httpx2.TransportError):
                    if client.get(health).is_success:
                        return
                time.sleep(_POLL_S)
        raise InputError(
            f"engine 'vllm': the model was not loaded after {within_s:g} seconds: give the model a longer `wait_s`, "
            "or set its folder `log` and read the log"
        )


@contextmanager
def serve(
    python: Path, flags: Sequence[str], environment: Mapping[str, str], log: Path | None, within_s: float
) -> Iterator[VllmProcess]:
    """Run vLLM's server for the length of the block, and no longer than this process lives.

    The variables of `environment` are added where this process does not have them.
    """
    if not python.is_file():
        raise InputError(
            f"engine 'vllm' has no environment ({python} is missing): run `make llm-server`, or correct the model's "
            "key `python`"
        )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The path is not resolved: a virtual environment's Python is a link that finds its environment by its own place.
    # The module is `vllm serve` with one front; the command itself does not start in vLLM's CPU build.
    command = [str(python.absolute()), "-P", "-m", "vllm.entrypoints.openai.api_server", *flags]
    # These variables would add this environment's packages.
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    own = {"VLLM_NO_USAGE_STATS": "1", "VLLM_API_KEY": secrets.token_urlsafe()}
    with tempfile.TemporaryDirectory(prefix="cliptune-vllm-") as temporary:
        folder = log or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "vllm.log").open("wb") as stream:
            process = subprocess.Popen(
                supervised([*command, "--host=127.0.0.1", f"--port={port}"], _GRACE_S),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**environment, **kept, **own},
                start_new_session=True,
            )
        running = VllmProcess(f"http://127.0.0.1:{port}/v1", own["VLLM_API_KEY"], process, folder / "vllm.log")
        try:
            running.wait_until_up(within_s)
            yield running
        finally:
            end(process, 4 * _GRACE_S)


ENGINE = (VllmOptions, VllmEngine)
