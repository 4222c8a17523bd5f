"""How fast is this engine on a GPU, beside open_clip_train and beside the processor? At most eight minutes.

It needs torch, open_clip, pydantic and this working tree, nothing else: a GPU can often be had for minutes only. Both
sides train ViT-B/32's text tower from the same random weights in the same precision, on the same batch, which is
on the GPU already. The peer runs the locked image tower in every step, this engine once. Then
pictures and texts are embedded, searched and scored, on the GPU and on the processor of the same machine; then training
and pictures again, compiled. A part that fails or takes too long is named, the others are printed all the same. A table
follows; the last line is one JSON object.

    python -m benchmarks.gpu
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

import open_clip
import torch

from benchmarks.gpu_inference import evaluation, on_processor, one_query, search, texts
from benchmarks.gpu_sides import Setup, embed, train_ours, train_peer
from components.core.compute.hardware import bf16_is_native
from components.core.system.errors import InputError, run_command

DEADLINE_S = 420.0
"""For all parts together; what starts python and imports torch comes on top."""
LARGE_GB = 60.0
"""Of GPU memory, with which the peer's batch of 1,024 texts of 77 tokens fits."""
TINY: dict[str, Any] = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}

Part = Callable[[], dict[str, float | None]]
INFERENCE = {"texts": texts, "search": search, "evaluation": evaluation, "one_query": one_query}
"""Parts that are measured on the processor too."""


def parts(setup: Setup, compile_too: bool) -> dict[str, tuple[float, Part]]:
    """The measurements in their order, with the seconds that each may take."""
    plain: dict[str, tuple[float, Part]] = {
        "open_clip_train": (75, lambda: train_peer(setup, compiled=False)),
        "cliptune": (60, lambda: train_ours(setup, compiled=False)),
        "embed": (45, lambda: embed(setup, compiled=False)),
    }
    few = on_processor(setup)
    for name, part in INFERENCE.items():
        plain |= {name: (30, partial(part, setup)), f"{name}_cpu": (30, partial(part, few))}
    plain["embed_cpu"] = (30, lambda: embed(few, compiled=False))
    compiled: dict[str, tuple[float, Part]] = {
        "cliptune_compiled": (120, lambda: train_ours(setup, compiled=True)),
        "embed_compiled": (90, lambda: embed(setup, compiled=True)),
        "open_clip_train_compiled": (150, lambda: train_peer(setup, compiled=True)),
    }
    return plain | compiled if compile_too else plain


def measure(setup: Setup, compile_too: bool, deadline: float = DEADLINE_S) -> dict[str, Any]:
    """Every part's figures, the ratios of them, and why a part has none.

    Args:
        deadline: seconds for all parts together; without end none has a limit of its own either.
    """
    started = time.monotonic()
    found: dict[str, dict[str, float | None]] = {}
    failed: dict[str, str] = {}
    for name, (seconds, part) in parts(setup, compile_too).items():
        left = deadline - (time.monotonic() - started)
        try:
            with within(min(seconds, left)) if math.isfinite(deadline) else nullcontext():
                found[name] = part()
        except Exception as error:
            # One command is all that there may be time for: finished parts must be printed.
            failed[name] = f"{type(error).__name__}: {error}"[:300]
        result = found.get(name) or failed[name]
        print(f"{name}: {result}", flush=True)
        if setup.device == "cuda":
            torch.cuda.empty_cache()
    return setup.facts() | {
        "parts": found,
        "failed": failed,
        "first_step_loss_difference": difference(found),
        "speedup_vs_open_clip_train": ratio(found, "cliptune", "open_clip_train"),
        "speedup_vs_open_clip_train_compiled": ratio(found, "cliptune_compiled", "open_clip_train_compiled"),
        "speedup_of_compiling": ratio(found, "cliptune_compiled", "cliptune"),
        "share_of_peak_flops": found.get("cliptune", {}).get("flop_utilisation"),
        "share_of_peak_flops_compiled": found.get("cliptune_compiled", {}).get("flop_utilisation"),
        "embed_images_per_second": found.get("embed", {}).get("samples_per_second"),
        "embed_images_per_second_compiled": found.get("embed_compiled", {}).get("samples_per_second"),
        "ratio_to_cpu": {name: ratio(found, name, f"{name}_cpu") for name in ("embed", *INFERENCE)},
        "seconds": round(time.monotonic() - started, 1),
    }


def table(found: dict[str, Any]) -> str:
    """Each part's rate on the device and on the processor, and the ratio of the two."""
    what = f"{found['device']}, {found['model']}"
    lines = [f"{what:34}{'per second':>14}{'processor':>14}{'ratio':>8}"]
    rates = {name: f"{part['samples_per_second']:,.0f}" for name, part in found["parts"].items()}
    for name, rate in rates.items():
        if not name.endswith("_cpu"):
            times = found["ratio_to_cpu"].get(name)
            lines.append(f"{name:34}{rate:>14}{rates.get(f'{name}_cpu', ''):>14}{f'{times:.1f}' if times else '':>8}")
    return "\n".join([*lines, *(f"{name:34} {reason}" for name, reason in found["failed"].items())])


def ratio(found: dict[str, dict[str, float | None]], one: str, other: str) -> float | None:
    """How many times as fast `one` is as `other`; None where either has no rate."""
    rates = [found.get(name, {}).get("samples_per_second") for name in (one, other)]
    return rates[0] / rates[1] if rates[0] and rates[1] else None


def difference(found: dict[str, dict[str, float | None]]) -> float | None:
    """How far the two sides' losses before any update are apart: it is the same training only where they are near."""
    losses = [found.get(side, {}).get("first_step_loss") for side in ("cliptune", "open_clip_train")]
    return abs(losses[0] - losses[1]) if losses[0] is not None and losses[1] is not None else None


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block when it takes longer; a compiler has no time limit."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds:.0f} s")

    if seconds <= 0:
        raise TimeoutError("no time is left")
    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def make_setup(arguments: argparse.Namespace) -> Setup:
    """The measurements for this machine.

    Raises:
        InputError: there is no GPU, and `--tiny` is not given, or the model is unknown.
    """
    if arguments.tiny:
        return Setup.of("tiny", TINY, "cpu", arguments.precision or "bf16", arguments.batch or 8, steps=2, warmup=1)
    if not torch.cuda.is_available():
        raise InputError("no GPU is visible: run this where `nvidia-smi` lists one, or give --tiny to try it without")
    config = open_clip.get_model_config(arguments.model)
    if config is None:
        raise InputError(f"--model '{arguments.model}' is not a model of open_clip")
    large = torch.cuda.get_device_properties(0).total_memory / 1e9 > LARGE_GB
    precision = arguments.precision or ("bf16" if bf16_is_native("cuda") else "fp32")
    return Setup.of(arguments.model, config, "cuda", precision, arguments.batch or (1024 if large else 256))


def main(given: list[str]) -> None:
    """Measure and print; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--model", default="ViT-B-32", help="an open_clip model with a CLIP text tower")
    parser.add_argument("--batch", type=int, help="rows of a batch; 1,024 on a GPU of 60 GB and more, else 256")
    parser.add_argument("--precision", choices=("bf16", "fp32"), help="bf16 where the GPU has it")
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled parts out")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the processor: does the command work?")
    arguments = parser.parse_args(given)

    def command() -> None:
        # A trial on a busy processor may take its time.
        deadline = math.inf if arguments.tiny else DEADLINE_S
        found = measure(make_setup(arguments), not arguments.no_compile, deadline)
        print(table(found))
        print(json.dumps(found))

    run_command(command)


if __name__ == "__main__":
    main(sys.argv[1:])
