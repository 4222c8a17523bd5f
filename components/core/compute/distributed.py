"""The ranks of a run: torchrun's processes, or this one process without torchrun."""

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

from components.core.errors import InputError
from components.core.processes import end_with_parent

_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class World:
    """This process among `size` ranks; with one rank every exchange is the identity."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this rank writes checkpoints, metrics and the encoder."""
        return self.rank == 0

    def share(self, batch_size: int) -> int:
        """Rows of a global batch that each rank holds.

        Raises:
            InputError: the ranks cannot share the batch evenly.
        """
        if batch_size % self.size:
            raise InputError(f"batch_size {batch_size} cannot be shared by {self.size} ranks: use a multiple")
        return batch_size // self.size

    def gather(self, own: Tensor) -> Tensor:
        """Features `[columns, batch, dim]` of every rank, `[columns, global batch, dim]`, in order of rank."""
        if self.size == 1:
            return own
        columns, rows, dim = own.shape
        everyone = own.new_empty(self.size * columns, rows, dim)
        dist.all_gather_into_tensor(everyone, own.contiguous())
        return everyone.view(self.size, columns, rows, dim).transpose(0, 1).reshape(columns, -1, dim)

    def own_gradient(self, gradient: Tensor) -> Tensor:
        """The sum over ranks of `[columns, global batch, dim]`, of which this rank's rows are returned.

        Every rank's loss depends on every rank's features, so a row's gradient is spread over all of them.
        """
        if self.size == 1:
            return gradient
        rows = gradient.shape[1] // self.size
        by_rank = gradient.reshape(gradient.shape[0], self.size, rows, -1).transpose(0, 1).contiguous()
        if dist.get_backend() == "nccl":
            own = torch.empty_like(by_rank[0])
            dist.reduce_scatter_tensor(own, by_rank)
            return own
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
        found = torch.empty(self.size, dtype=torch.int64, device=device)
        dist.all_gather_into_tensor(found, torch.tensor([value], device=device))
        values: list[int] = found.tolist()
        return values

    def wait(self) -> None:
        """Return when every rank has come this far."""
        if self.size > 1:
            dist.barrier()


def launched_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "LOCAL_RANK" in os.environ and "WORLD_SIZE" in os.environ


def become_torchrun(processes: int, arguments: Sequence[str]) -> None:
    """Replace this process by torchrun with so many ranks on this machine, so that who stops it stops all of them.

    Args:
        arguments: of `python`, such as `["-m", "components.encoders.embed"]`.
    """
    torchrun = ["-m", __name__, "--standalone", "--nproc-per-node", str(processes)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *torchrun, *arguments])


def _torchrun() -> None:
    """torchrun, without its traceback where it is stopped by a signal or a rank ended with an error."""
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
    """This process's world and device for the length of the block: NCCL between GPUs, gloo otherwise.

    Args:
        device: `cpu` or `cuda`; under torchrun each process takes the GPU of its local rank.
    """
    if not launched_by_torchrun() or int(os.environ["WORLD_SIZE"]) == 1:
        yield World(), device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    # torchrun starts every rank in a session of its own, so nothing else reaches the ranks when it is killed.
    torchrun = os.getppid()
    end_with_parent(lambda: os.getppid() == torchrun)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=_TIMEOUT)
    try:
        yield World(dist.get_rank(), dist.get_world_size()), device
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    _torchrun()
