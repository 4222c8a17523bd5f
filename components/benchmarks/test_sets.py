"""What the published benchmarks of a folder test on, read by the benchmarks' own readers and without an encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.benchmarks.benchmark import Tested
from components.benchmarks.encoding.context import EncoderUnderTest
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.published import published_benchmarks
from components.core.errors import InputError
from components.core.metrics import Features


@dataclass(frozen=True)
class TestSet:
    """One published test set.

    Attributes:
        name: of the benchmark that tells it.
        tested: its texts and pictures; None where its files cannot be read.
        fault: why they cannot.
    """

    __test__ = False

    name: str
    tested: Tested | None
    fault: str = ""


class _NoEncoder:
    """Stands where a benchmark has its encoder, for readers that ask for none."""

    def embed_texts(self, texts: Sequence[str], batch_size: int = 0, title: str | None = None) -> Features:
        raise NotImplementedError("a test set is read without an encoder")


def reading(folder: Path, *, allow_partial: bool = False) -> PublishedContext:
    """What a benchmark's readers are given, of its files in `folder` and of no encoder."""
    return PublishedContext(EncoderUnderTest("none", _NoEncoder(), ""), folder, allow_partial=allow_partial)


def test_sets(data: Path) -> Iterator[TestSet]:
    """The test sets that lie in the folder of `cliptune evaluate --data`, one at a time, sorted by name.

    Sets that are there in part are read as far as they go: what is there can be scored with `--allow-partial`.

    Raises:
        InputError: there is no such folder.
    """
    if not data.is_dir():
        raise InputError(f"{data} does not exist: put the published test sets there, or set prepare.benchmarks to null")
    for name, benchmark in published_benchmarks().items():
        folder = data / benchmark.folder
        if benchmark.tested is None or not folder.is_dir():
            continue
        # Benchmarks may share a folder; one whose own files are not there at all is not there.
        if not any((folder / need.path).exists() for need in benchmark.needs):
            continue
        try:
            yield TestSet(name, benchmark.tested(reading(folder, allow_partial=True)))
        except (InputError, OSError) as fault:
            yield TestSet(name, None, " ".join(str(fault).split()))
