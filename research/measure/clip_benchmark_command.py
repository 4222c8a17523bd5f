"""The command `clip_benchmark` with one line fixed: its accuracy made a scalar of an array, as NumPy no longer does."""

from __future__ import annotations

from collections.abc import Sequence

from clip_benchmark import cli
from clip_benchmark.metrics import zeroshot_classification
from torch import Tensor


def accuracy(output: Tensor, target: Tensor, topk: Sequence[int] = (1,)) -> list[float]:
    """Share of rows whose target is among the `k` largest of `output` `[rows, classes]`, for each k."""
    correct = output.topk(max(topk), dim=1).indices == target.view(-1, 1)
    return [float(correct[:, :k].any(dim=1).float().mean()) for k in topk]


if __name__ == "__main__":
    zeroshot_classification.accuracy = accuracy
    cli.main()
