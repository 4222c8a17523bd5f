"""Steps of the loop as metrics of the tracked run."""

from __future__ import annotations

from collections.abc import Callable

from components.tracking import TrackedRun
from components.training.loop import Step


def report_to(run: TrackedRun) -> Callable[[Step], None]:
    """A reporter that logs every step's losses, learning rate, throughput, logit scale and gradient norm."""

    def report(step: Step) -> None:
        metrics = {f"loss/{name}": value for name, value in step.losses.items()}
        metrics |= {
            "loss/total": sum(step.losses.values()),
            "train/lr": step.lr,
            "train/samples_per_second": step.samples_per_second,
            "train/logit_scale": step.logit_scale,
            "train/gradient_norm": step.gradient_norm,
        }
        run.log_metrics(metrics, step.number)

    return report
