"""The only training loop; SIGINT and SIGTERM wait for the end of a step, so that no step is lost that was done."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

from tqdm import tqdm

from components.core.errors import InputError
from components.core.progress import bar
from components.training.engine.meter import Meter, Step
from components.training.engine.run import Run
from components.training.engine.stepper import Done, Stepper, check_warmup, make_optimiser
from components.training.rows.batches import Batch


def fit(run: Run) -> int:
    """Train to the end, from the newest checkpoint where there is one; returns the number of steps.

    Told to stop by SIGINT or SIGTERM, it saves a checkpoint after the step at hand, on whichever rank the signal came.
    Afterwards the model holds the average of the weights where one is kept, else the last weights.

    Raises:
        InputError: the warm-up is as long as the run, there are too few rows for a batch, another process has the
            same run's checkpoints, or these were made by ranks that shared the data otherwise.
        NonFiniteError: a loss or gradient is not finite; a checkpoint of the last good step is kept.
    """
    held = run.checkpoints.held() if run.checkpoints is not None and run.engine.world.leads else nullcontext()
    # Without checkpoints there is nothing to wait for.
    stops = told_to_stop() if run.checkpoints is not None else nullcontext(Stop())
    with held, stops as stop:
        return _fit(run, stop)


def _fit(run: Run, stop: Stop) -> int:
    plan, engine = run.optimisation, run.engine
    run.source.check(run.title)
    per_epoch = run.source.steps_per_epoch // plan.accumulate
    if per_epoch == 0:
        raise InputError(f"{run.title}: accumulate {plan.accumulate} is more than an epoch's batches: lower it")
    total = per_epoch * plan.epochs
    check_warmup(plan.warmup_steps, total)
    # No dropout, no batch statistics: micro-batches compute the same features twice and must get the same.
    run.model.eval()
    stepper = Stepper(run, make_optimiser(run.trained, plan, run.rates), per_epoch)
    state = stepper.state
    state.resume()
    meter = Meter(engine.device, engine.world.size)
    rows = plan.batch_size * plan.accumulate
    shown = bar(run.title, total * rows, "sample", state.step * rows) if engine.world.leads else nullcontext()
    with shown as progress:
        while state.step < total:
            with closing(run.source.epoch(state.epoch, state.cursor)) as source:
                for batches in _steps(source, plan.accumulate, meter):
                    if state.step >= (state.epoch + 1) * per_epoch:
                        break
                    done = stepper.step(batches, meter)
                    state.advance(batches[-1].cursor)
                    _look(run, stepper, meter, progress, done, total)
                    # A signal may reach one rank alone, and all must save together.
                    if told := max(engine.world.everyones(stop.number)):
                        state.save()
                        stop.end(told)
            state.next_epoch()
    if state.average is not None:
        state.average.put()
    return total


def _steps(batches: Iterator[Batch], accumulate: int, meter: Meter) -> Iterator[list[Batch]]:
    """`accumulate` batches at a time; what is left over at the end of an epoch is dropped."""
    while True:
        with meter.waiting():
            taken = [batch for _, batch in zip(range(accumulate), batches, strict=False)]
        if len(taken) < accumulate:
            return
        yield taken


def _look(
    run: Run,
    stepper: Stepper,
    meter: Meter,
    progress: tqdm | None,  # type: ignore[type-arg]
    done: Done,
    total: int,
) -> None:
    """What follows a step: progress, report, validation, checkpoint."""
    engine, state = run.engine, stepper.state
    last = state.step == total
    if progress is not None:
        progress.update(run.optimisation.batch_size * run.optimisation.accumulate)
    if state.step % engine.log_every == 0 or last:
        losses = {name: float(value) for name, value in done.outcome.losses.items()}
        pace, lost = meter.look(), sum(engine.world.everyones(meter.lost))
        if progress is not None:
            progress.set_postfix(loss=f"{sum(losses.values()):.3f}")
        if run.report and engine.world.leads:
            scale = float(run.model.logit_scale.detach().exp())  # type: ignore[operator,union-attr]
            run.report(Step(state.step, losses, done.lr, scale, done.gradient_norm, pace, lost))
    # Only the leading rank has something to validate, but every rank must take part: they wait for each other.
    if engine.validate_every and (state.step % engine.validate_every == 0 or last):
        stepper.validate()
    if run.checkpoints and state.step % engine.checkpoint_every == 0 and not last:
        state.save()


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_S = 1.0
"""Within which a second signal is the first one come twice: from the terminal and from the process above, say."""


@dataclass
class Stop:
    """Which signal came, 0 for none, and how to end by it."""

    number: int = 0
    put_back: Callable[[], None] = lambda: None

    def end(self, number: int) -> None:
        """Let the signal do what it would have done at once; never returns."""
        self.put_back()
        signal.raise_signal(number)
        raise KeyboardInterrupt


@contextmanager
def told_to_stop() -> Iterator[Stop]:
    """Note SIGINT and SIGTERM for the length of the block; one that comes again later ends the process at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # Who started this process to ignore a signal, as nohup does, is not overruled.
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
            # Not print: what it writes to may be in the midst of a line.
            os.write(2, b"\nsaves a checkpoint after this step and stops; once more to stop at once\n")

    stop.put_back = put_back
    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        put_back()
