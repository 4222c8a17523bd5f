"""Options, table and record of every measurement; imports nothing that torch and pydantic do not bring."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from components.core.system.errors import run_command

Found = dict[str, Any]
"""Figures of a measurement, as plain JSON."""
Options = Mapping[str, tuple[str | int | float | bool, str]]
"""Option -> its default, whose type it has, and its help; False makes a flag."""


def run(
    name: str,
    text: str | None,
    options: Options,
    measure: Callable[..., Found],
    rows: Callable[[Found], Iterable[Sequence[object]]],
) -> None:
    """Call `measure` with the options by name and print a table; the last line is the record as one JSON object."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m research.measure.{name}", description=text, formatter_class=formatter)
    for option, (default, meaning) in options.items():
        kind: dict[str, Any] = {"action": "store_true"} if default is False else {"type": type(default)}
        parser.add_argument(f"--{option.replace('_', '-')}", default=default, help=f"{meaning} ({default})", **kind)
    arguments = parser.parse_args()

    def command() -> None:
        found = machine() | measure(**vars(arguments))
        print(aligned(rows(found)))
        print(json.dumps(found))

    run_command(command)


def machine() -> Found:
    """What every figure depends on: code, processors, GPU and torch; `commit` is empty outside of git."""
    return {
        "commit": subprocess.getoutput("git rev-parse HEAD 2>/dev/null || true"),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
    }


def aligned(rows: Iterable[Sequence[object]]) -> str:
    """Rows as a table with columns of equal width; numbers with four digits, None as nothing."""
    cells = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return "" if cell is None else str(cell)
