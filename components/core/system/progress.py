"""Progress bars with rates, readable on a terminal and in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def bar(title: str, total: int | None, unit: str, initial: int = 0) -> tqdm:  # type: ignore[type-arg]
    """A progress bar, unless the total is zero; without a terminal it prints a line at most every ten seconds."""
    interval, none = 0.2 if sys.stderr.isatty() else 10.0, total == 0
    unit = f" {unit}s"
    return tqdm(
        desc=title, total=total, unit=unit, initial=initial, mininterval=interval, dynamic_ncols=True, disable=none
    )


def track(items: Iterable[T], title: str, total: int | None, unit: str) -> Iterator[T]:
    """Yield `items` while a bar counts them."""
    with bar(title, total, unit) as progress:
        for item in items:
            yield item
            progress.update()
