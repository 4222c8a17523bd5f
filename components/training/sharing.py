"""Objects that one rank of a machine makes for all its ranks; their arrays are in the machine's memory once."""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from components.core.compute.distributed import World
from components.core.tables.arrays import mapped_array

T = TypeVar("T")

_PATIENCE = timedelta(days=1)
"""Of ranks that wait while another one reads tables; torchrun ends them if that one dies."""


def once_per_machine(world: World, make: Callable[[], T], folder: Path) -> T:
    """The result of `make`, called by the first rank of each machine; all ranks must call this.

    Arrays, tensors and Arrow columns of the result are mapped from a file in `folder`, copy-on-write. The file is
    removed when every rank has mapped it. Memory-mapped arrays stay in their own files.

    Raises:
        Exception: that of `make`, on the rank that called it; the other ranks exit.
    """
    if world.size == 1:
        return make()
    waiting: Any = dist.new_group(backend="gloo", timeout=_PATIENCE)
    path, makes, failure = folder / f".shared-{token_hex(8)}", world.local_rank == 0, SystemExit(1)
    # None reports a failure to the ranks that would else wait.
    everyones: list[Any] = [None] * world.size
    try:
        own: Any = None if makes else "waits"
        try:
            own = (path, *_write(make(), path)) if makes else own
        except Exception as error:
            failure = error  # type: ignore[assignment]
        dist.all_gather_object(everyones, own, group=waiting)
        if None in everyones:
            raise failure
        result: T = _map(*everyones[world.rank - world.local_rank])
        dist.barrier(waiting)
    finally:
        path.unlink(missing_ok=True)
    dist.destroy_process_group(waiting)
    return result


class _Pickler(pickle.Pickler):
    # Pickled bytes only pass between ranks of one run, as torch.distributed sends objects; files hold arrays alone.
    def reducer_override(self, value: Any) -> Any:
        # A part of a mapped array has another array as base.
        if isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap):
            return mapped_array, (Path(str(value.filename)), "delete it and run the stage again")
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def _write(value: Any, path: Path) -> tuple[bytes, list[slice]]:
    """The pickled value without its arrays, and the place of each array in the file."""
    rest, places = BytesIO(), []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:

        def write(array: pickle.PickleBuffer) -> None:
            file.seek(-(-file.tell() // 64) * 64)  # aligned
            places.append(slice(file.tell(), file.tell() + file.write(array.raw())))

        _Pickler(rest, protocol=5, buffer_callback=write).dump(value)
        # An empty file cannot be mapped.
        file.truncate(file.tell() + 1)
    return rest.getvalue(), places


def _map(path: Path, rest: bytes, places: list[slice]) -> Any:
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return pickle.loads(rest, buffers=[view[place] for place in places])
