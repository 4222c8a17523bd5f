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
    given: Sequence[str] | None = None,
) -> None:
    """Call `measure` with the options by name and print a table; the last line is the record as one JSON object.

    Args:
        name, text: of the module in `research.measure`, and its help.
        rows: those of the table; the first is its head.
        given: arguments, by default those of the process.
    """
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m research.measure.{name}", description=text, formatter_class=formatter)
    for option, (default, meaning) in options.items():
        kind: dict[str, Any] = {"action": "store_true"} if default is False else {"type": type(default)}
        parser.add_argument(f"--{option.replace('_', '-')}", default=default, help=f"{meaning} ({default})", **kind)
    arguments = parser.parse_args(given)

    def command() -> None:
        found = machine() | measure(**vars(arguments))
        print(aligned(rows(found)))
        print(json.dumps(found))

    run_command(command)


def machine() -> Found:
    """What every figure depends on: code, processors, GPU and torch."""
    return {
        "commit": commit(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
    }


def commit() -> str:
    """The checked-out commit; empty outside of git."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def aligned(rows: Iterable[Sequence[object]]) -> str:
    """Rows as a table with columns of equal width; numbers with four digits, None as nothing."""
    cells = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return "" if cell is None else str(cell)
