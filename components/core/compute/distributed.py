"""The ranks of a run: torchrun's processes, or only this process without torchrun."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from components.core.system.errors import InputError
from components.core.system.processes import end_with_parent


@dataclass(frozen=True)
class World:
    """This process among `size` ranks; with one rank every exchange is the identity.

    Attributes:
        local_rank: number among the ranks of this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def leads(self) -> bool:
        """Whether this rank writes checkpoints, metrics and the encoder."""
        return self.rank == 0

    def share(self, batch_size: int) -> int:
        """Rows of a global batch on each rank."""
        if batch_size % self.size:
            raise InputError(f"batch_size {batch_size} cannot be shared by {self.size} ranks: use a multiple")
        return batch_size // self.size

    def gather(self, rows: Tensor) -> Tensor:
        """Features `[columns, batch, dim]` of every rank, `[columns, global batch, dim]`, in order of rank."""
        if self.size == 1:
            return rows
        columns, batch, dim = rows.shape
        gathered = rows.new_empty(self.size * columns, batch, dim)
        dist.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered.view(self.size, columns, batch, dim).transpose(0, 1).reshape(columns, -1, dim)

    def own_gradient(self, gradient: Tensor) -> Tensor:
        """This rank's rows of the sum over ranks of `[columns, global batch, dim]`.

        The loss of every rank depends on the features of all ranks, so a row's gradient is spread over all ranks.
        """
        if self.size == 1:
            return gradient
        rows = gradient.shape[1] // self.size
        by_rank = gradient.reshape(gradient.shape[0], self.size, rows, -1).transpose(0, 1).contiguous()
        if dist.get_backend() == "nccl":
            reduced = torch.empty_like(by_rank[0])
            dist.reduce_scatter_tensor(reduced, by_rank)
            return reduced
        dist.all_reduce(by_rank)
        return by_rank[self.rank]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over ranks."""
        if self.size == 1:
            return
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor.div_(self.size)

    def everyones(self, value: int) -> list[int]:
        """Each rank's `value`, in order of rank."""
        if self.size == 1:
            return [value]
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        gathered = torch.empty(self.size, dtype=torch.int64, device=device)
        dist.all_gather_into_tensor(gathered, torch.tensor([value], device=device))
        values: list[int] = gathered.tolist()
        return values

    def wait(self) -> None:
        """Wait until every rank has reached this call."""
        if self.size > 1:
            dist.barrier()


def launched_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "LOCAL_RANK" in os.environ and "WORLD_SIZE" in os.environ


def become_torchrun(processes: int, arguments: Sequence[str]) -> None:
    """Replace this process by torchrun, so that a signal to it stops all ranks; nothing happens for one rank.

    A launcher's variables PET_NPROC_PER_NODE and PET_NNODES, which torchrun reads, come before `processes`.
    """
    processes = int(os.environ.get("PET_NPROC_PER_NODE", processes))
    alone = int(os.environ.get("PET_NNODES", "1")) == 1
    if launched_by_torchrun() or (alone and processes == 1):
        return
    torchrun = ["-m", __name__, *(["--standalone"] if alone else []), "--nproc-per-node", str(processes)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *torchrun, *arguments])


def _torchrun() -> None:
    """torchrun without a traceback when it is stopped by a signal or a rank fails."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    try:
        main()
    except SignalException as stopped:
        signal.signal(stopped.sigval, signal.SIG_DFL)
        signal.raise_signal(stopped.sigval)
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        raise SystemExit(f"rank {rank} ended with exit code {failure.exitcode}") from None


@contextmanager
def join_world(device: str) -> Iterator[tuple[World, str]]:
    """The world and device of this process in the block: NCCL between GPUs, gloo otherwise."""
    if not launched_by_torchrun() or int(os.environ["WORLD_SIZE"]) == 1:
        yield World(), device
        return
    if ":" in device:
        raise InputError(f"device is '{device}', one GPU for all ranks: set it to 'cuda' or 'auto'")
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    # torchrun starts every rank in its own session, so no signal reaches the ranks when torchrun is killed.
    torchrun = os.getppid()
    end_with_parent(lambda: os.getppid() == torchrun)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=timedelta(minutes=10))
    try:
        yield World(dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])), device
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    _torchrun()
