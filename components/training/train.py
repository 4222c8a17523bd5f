"""Stage `train`: fine-tune the base encoder with one method; under torchrun, on several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

import torch
import typer

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.devices import pick_device, pick_precision
from components.core.compute.distributed import World, become_torchrun, join_world
from components.core.compute.provenance import code_hash, data_hashes, git_commit, path_hash
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.project import run_in_project, start
from components.core.tables.files import content_hash, write_json
from components.core.tracking import RUN_FILE, TrackedRun, tracked_run
from components.data.leaks.report import read_counts
from components.encoders.adapter.encoder import Encoder
from components.training.data import TrainingFiles, load_data
from components.training.engine.meter import report_to
from components.training.engine.run import LoopOptions, State
from components.training.engine.stepper import NonFiniteError
from components.training.fine_tuning import FineTuning
from components.training.held_out import DIRECTIONS, Data, check_export, watch
from components.training.methods.registry import Entry, find_entry
from components.training.rows.batches import BatchSource
from components.training.sharing import once_per_machine


@dataclass(frozen=True)
class TrainingJob:
    """One run of the stage, loaded and checked.

    Attributes:
        base_tower: hash of the base's image tower.
        fingerprint: changes with everything that the weights depend on, so that only its own checkpoints fit.
    """

    settings: Settings
    entry: Entry
    tuning: FineTuning
    source: BatchSource
    data: Data
    hashes: dict[str, str]
    base_tower: str = ""

    @property
    def fingerprint(self) -> str:
        train = self.settings.train
        method = self.entry.method
        # A setting that a later version adds or drops changes no fingerprint where it has its default.
        values = (
            (field.name, getattr(method.settings, field.name), field.default) for field in fields(method.settings)
        )
        differing = sorted((name, repr(value)) for name, value, default in values if value != default)
        parts = self.entry.name, method.name, repr(differing), method.epoch_unit
        chosen = str(train.seed), str(train.validation_images), train.select_checkpoint, train.precision
        return content_hash(*parts, *chosen, *sorted(self.hashes.values()))[:16]


Observe = Callable[[Mapping[str, float], int], None]
"""Receives early metrics and their step; may raise `StoppedEarlyError`."""


class StoppedEarlyError(Exception):
    """Raised by an observer to end a run that is not worth more steps."""


def run(settings: Settings, name: str, files: TrainingFiles | None = None, observe: Observe | None = None) -> bool:
    """Write `models/<name>/`: the fine-tuned encoder and a reference to its MLflow run.

    Returns:
        False if `observe` stopped the run early, so that there is no encoder.
    """
    entry = find_entry(settings.methods, name)
    method = entry.method
    files = files or TrainingFiles(validated=entry.reads)
    with join_world(pick_device(settings.device)) as (world, device), ExitStack() as stack:
        for warning in method.warnings() if world.leads else []:
            print(f"{name}: {warning}")
        # Parameters and fingerprint have the precision, not `auto`.
        precision = pick_precision(settings.train.precision, device)
        settings = settings.model_copy(update={"train": settings.train.model_copy(update={"precision": precision})})
        torch.manual_seed(settings.train.seed)
        base = Encoder.load(files.base)
        tower = base.sidecar.image_tower_sha256
        tuning = FineTuning.of(base, method)
        source, data = load_data(settings.train, method, tuning.encoder, files, world)
        inputs = {**data.inputs, "embeddings": files.embeddings, "base": files.base / "encoder.safetensors"}
        other_files = {key: path_hash(path) for key, path in method.files().items()}
        hashes = once_per_machine(world, lambda: data_hashes(inputs.values()), settings.train.checkpoint_dir)
        hashes |= other_files | data.streamed
        job = TrainingJob(settings, entry, tuning, source, data, hashes, tower)
        if len(set(world.everyones(int(job.fingerprint[:15], 16)))) > 1:
            raise InputError(
                "the machines have different params.yaml, tables or base encoders: copy those of one to all"
            )
        params = asdict(method.settings) | {"method": method.name, "train": settings.train.model_dump(mode="json")}
        tracked = stack.enter_context(tracked_run("train", name, settings, params, inputs)) if world.leads else None
        if tracked is not None:
            leaks = read_counts(files.leaks)
            tracked.set_tags({} if leaks is None else leaks.tags())
        try:
            checkpoints, state = _train(job, world, device, tracked, observe)
        except StoppedEarlyError:
            if tracked is not None:
                tracked.set_tags({"stopped": "early"})
                _checkpoints(job).clear()
            return False
        if tracked is not None:
            _save(job, files.models / name, tracked)
            _log_models(job, tracked, state, checkpoints)
            checkpoints.clear()
    return True


def _checkpoints(job: TrainingJob) -> Checkpoints:
    train = job.settings.train
    folder = train.checkpoint_dir / f"{job.entry.name}-{job.fingerprint}"
    return Checkpoints(folder, train.keep_checkpoints, code_hash("train"))


def _train(
    job: TrainingJob, world: World, device: str, tracked: TrackedRun | None, observe: Observe | None
) -> tuple[Checkpoints, State]:
    train, metric, checkpoints = job.settings.train, job.settings.train.select_checkpoint, _checkpoints(job)
    check_export(train, job.data)

    def log(metrics: dict[str, float], step: int) -> None:
        assert tracked is not None
        tracked.log_metrics(metrics, step)
        if observe is not None:
            observe(metrics, step)

    with _note_bad_batch(checkpoints.folder, tracked):
        state = job.tuning.fit(
            job.source,
            job.entry.name,
            LoopOptions.of(train, device, world),
            checkpoints=checkpoints,
            report=report_to(tracked) if tracked is not None else None,
            validate=watch(job.data, job.tuning.encoder.tokenizer, log) if tracked is not None else None,
            select=None if metric == "last" else (metric, DIRECTIONS[metric]),
        )
    return checkpoints, state


@contextmanager
def _note_bad_batch(folder: Path, tracked: TrackedRun | None) -> Iterator[None]:
    try:
        yield
    except NonFiniteError as error:
        if tracked is not None:
            path = folder / f"non_finite_step_{error.step}.json"
            write_json(path, {"step": error.step, "ids": error.ids, "reason": str(error)})
            tracked.log_artifact(path)
        raise


def _save(job: TrainingJob, folder: Path, tracked: TrackedRun) -> None:
    encoder = job.tuning.encoder
    encoder.sidecar = encoder.sidecar.model_copy(update={"data_hashes": job.hashes, "git_commit": git_commit()})
    if job.settings.train.keep_index and encoder.image_tower_hash() != job.base_tower:
        raise InputError(
            f"{job.entry.name}: training changed the image tower although train.keep_index is set: nothing was saved"
        )
    encoder.save(folder)
    write_json(folder / RUN_FILE, tracked.reference())
    tracked.log_artifact(folder)


def _log_models(job: TrainingJob, tracked: TrackedRun, state: State, checkpoints: Checkpoints) -> None:
    """Record the encoder, and with `all` the kept checkpoints, as MLflow logged models at their steps."""
    wanted, name = job.settings.train.log_checkpoints, job.entry.name
    if wanted == "none":
        return
    if wanted == "all":
        for step, folder in checkpoints.kept().items():
            tracked.log_model(f"{name}-step-{step}", step, state.metrics.get(step, {}), folder)
    step = state.step if job.settings.train.select_checkpoint == "last" else state.best_step
    tracked.log_model(name, step, state.metrics.get(step, {}))


def main(method: Annotated[str, typer.Option(help="An entry of `methods` in params.yaml, such as paraclip.")]) -> None:
    """Fine-tune the base encoder with one method and its settings in params.yaml.

    Example: python -m components.training.train --method semclip
    """

    def command() -> None:
        settings = load_checked(entries=[method])
        become_torchrun(settings.train.processes, ["-m", __spec__.name, "--method", method])
        run(settings, method)

    run_in_project(command)


if __name__ == "__main__":
    start(main)
