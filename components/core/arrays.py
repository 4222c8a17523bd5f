"""Opens arrays on disk (`.npy`) memory-mapped; used for embeddings and token caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError


def mapped_array(path: Path, fix: str) -> npt.NDArray[Any]:
    """The array at `path`, read-only; nothing in the file is run.

    Args:
        fix: what to do where the file is damaged.

    Raises:
        InputError: it is no whole `.npy` file.
    """
    try:
        found: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:120]}): {fix}") from None
    return found
