"""Steps of the loop as metrics of the tracked run."""

from __future__ import annotations

from collections.abc import Callable

from components.tracking import TrackedRun
from components.training.engine.run import Step


def report_to(run: TrackedRun) -> Callable[[Step], None]:
    """A reporter that logs every step's losses, learning rate, logit scale, gradient norm and pace."""

    def report(step: Step) -> None:
        metrics = {f"loss/{name}": value for name, value in step.losses.items()}
        metrics |= {
            "loss/total": sum(step.losses.values()),
            "train/lr": step.lr,
            "train/logit_scale": step.logit_scale,
            "train/gradient_norm": step.gradient_norm,
            "train/samples_per_second": step.pace.samples_per_second,
            "train/tokens_per_second": step.pace.tokens_per_second,
            "train/data_wait_share": step.pace.data_wait_share,
            "train/peak_memory_mb": step.pace.peak_memory_mb,
            "train/lost_samples": step.lost,
        }
        if step.pace.flop_utilisation is not None:
            metrics["train/flop_utilisation"] = step.pace.flop_utilisation
        run.log_metrics(metrics, step.number)

    return report
