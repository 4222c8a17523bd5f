"""The training loop. SIGINT and SIGTERM save a checkpoint at the end of the step, so that no step is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FrameType

from tqdm import tqdm

from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.training.engine.meter import Meter, Step
from components.training.engine.run import Run, State
from components.training.engine.stepper import Done, Stepper, make_optimiser
from components.training.rows.batches import Batch


def fit(run: Run) -> State:
    """Train to the end, from the newest checkpoint if there is one; returns the last state.

    After SIGINT or SIGTERM on any rank, the current step is finished, a checkpoint is saved and the process ends.

    Raises:
        InputError: there are too few rows for a batch, another process uses the same run's checkpoints, or ranks that
            shared the data differently wrote them.
        NonFiniteError: a loss or gradient is not finite; a checkpoint of the last good step remains.
    """
    held = run.checkpoints.held() if run.checkpoints is not None and run.options.world.leads else nullcontext()
    # Without checkpoints a signal ends the process at once.
    stops = stop_on_signal() if run.checkpoints is not None else nullcontext(Stop())
    with held, stops as stop:
        return _fit(run, stop)


def _fit(run: Run, stop: Stop) -> State:
    plan, options = run.optimisation, run.options
    run.source.check(run.title)
    per_epoch = run.source.steps_per_epoch // plan.accumulate
    if per_epoch == 0:
        raise InputError(f"{run.title}: accumulate {plan.accumulate} is more than an epoch's batches: lower it")
    total = per_epoch * plan.epochs
    if plan.warmup_steps >= total:
        # A run that would end within its warm-up gets a tenth of it.
        warmup = total // 10
        if options.world.leads:
            print(f"{run.title}: {plan.warmup_steps} warm-up steps do not fit into {total} steps: {warmup} are used")
        plan = replace(plan, warmup_steps=warmup)
        run = replace(run, optimisation=plan)
    # No dropout, no batch statistics: micro-batches compute the same features twice and must get the same.
    run.model.eval()
    stepper = Stepper(run, make_optimiser(run.trained, plan, run.rates), per_epoch)
    state = stepper.state
    state.resume()
    meter = Meter(options.device, options.world.size)
    rows = plan.batch_size * plan.accumulate
    shown = bar(run.title, total * rows, "sample", state.step * rows) if options.world.leads else nullcontext()
    with shown as progress:
        while state.step < total:
            with closing(run.source.epoch(state.epoch, state.cursor)) as source:
                for batches in _steps(source, plan.accumulate, meter):
                    if state.step >= (state.epoch + 1) * per_epoch:
                        break
                    done = stepper.step(batches, meter)
                    state.advance(batches[-1].cursor)
                    _after_step(run, stepper, meter, progress, done, total)
                    # A signal may reach only one rank, and all must save together.
                    if number := max(options.world.everyones(stop.number)):
                        state.save()
                        stop.end(number)
            state.next_epoch()
    return state


def _steps(batches: Iterator[Batch], accumulate: int, meter: Meter) -> Iterator[list[Batch]]:
    """`accumulate` batches at a time; fewer at the end of an epoch are dropped."""
    while True:
        with meter.waiting():
            taken = [batch for _, batch in zip(range(accumulate), batches, strict=False)]
        if len(taken) < accumulate:
            return
        yield taken


def _after_step(
    run: Run,
    stepper: Stepper,
    meter: Meter,
    progress: tqdm | None,  # type: ignore[type-arg]
    done: Done,
    total: int,
) -> None:
    """Progress, report, validation and checkpoint of a step."""
    options, state = run.options, stepper.state
    last = state.step == total
    if progress is not None:
        progress.update(run.optimisation.batch_size * run.optimisation.accumulate)
    if state.step % options.log_every == 0 or last:
        losses = {name: float(value) for name, value in done.last.losses.items()}
        pace, lost = meter.pace(), sum(options.world.everyones(meter.lost))
        if progress is not None:
            progress.set_postfix(loss=f"{sum(losses.values()):.3f}")
        if run.report and options.world.leads:
            scale = float(run.model.logit_scale.detach().exp())  # type: ignore[operator,union-attr]
            run.report(Step(state.step, losses, done.lr, scale, done.gradient_norm, pace, lost))
    # Only the leading rank validates, but every rank must call this: they wait for each other.
    if options.validate_every and (state.step % options.validate_every == 0 or last):
        stepper.validate()
    if run.checkpoints and state.step % options.checkpoint_every == 0 and not last:
        state.save()


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_S = 1.0
"""A second signal within this time is the same one, sent by the terminal and by the parent process, for example."""


@dataclass
class Stop:
    """The signal that came, 0 for none, and how to restore the handlers."""

    number: int = 0
    put_back: Callable[[], None] = lambda: None

    def end(self, number: int) -> None:
        """End the process by the signal, as without a handler; never returns."""
        self.put_back()
        signal.raise_signal(number)
        raise KeyboardInterrupt


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Record SIGINT and SIGTERM within the block; a second signal ends the process at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # A signal that the parent process set to be ignored, like nohup does, stays ignored.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    came = 0.0

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if stop.number and time.monotonic() > came + _SAME_S:
            stop.end(number)
        if not stop.number:
            stop.number, came = number, time.monotonic()
            # Not print, which may be interrupted within a line.
            os.write(2, b"\nstopping after this step with a checkpoint; press again to stop at once\n")

    stop.put_back = put_back
    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        put_back()
