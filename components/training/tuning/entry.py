"""Tunes one method: short training runs with other learning rates and epochs, scored on the validation split.

Optuna's tree-structured Parzen estimator, with seed `train.seed`, proposes the runs. Successive halving stops those
whose early metric is in the lower half (Jamieson and Talwalkar 2016). Every encoder is scored alone and averaged
with the base, which needs no training. One half of the validation pictures chooses, and the other half shows the gain
of the choice. No test picture or text is used.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import torch

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.folders import BASE
from components.core.tracking import add_metrics, parent_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import HalfScores, ShownGain
from components.training.data import TrainingFiles
from components.training.methods.registry import Entry, find_entry
from components.training.mixing.mix import weights_of
from components.training.train import StoppedEarlyError
from components.training.train import run as train
from components.training.tuning.trials import STORE, Scores, gate_metrics, open_study, run_trials

STATE = Path("state/tune")
SHARES = (1.0, 0.75, 0.5)
"""Shares of the trained weights that are tried; the rest is the base's (WiSE-FT)."""
_WIDTH = 8.0
"""Learning rates from an eighth of the entry's to eight times it."""
_EPOCHS = (0.5, 1.0, 2.0)
"""Factors of the entry's epochs."""
_EARLY = "validation/ao_at_10"
_EVERY = 10
"""Most steps between two early metrics."""
_PENALTY = 10.0
"""Weight of a guard's loss in the objective, so that the sampler avoids it."""


@dataclass(frozen=True)
class Tuned:
    """The best trial.

    Attributes:
        values: keys of the entry in `methods` and their values.
        gain: on the half of the validation pictures that chose nothing, as all `scores` and those of `base`.
        trials: number of trials, `stopped` of them early.
        broken: the guards that every trial broke on the half that chooses, if there is none that held them all.
    """

    values: dict[str, float | int]
    gain: ShownGain
    scores: dict[str, float]
    base: dict[str, float]
    trials: int
    stopped: int
    broken: tuple[str, ...] = ()


def tune(settings: Settings, name: str, trials: int, scores: Scores, store: str = STORE) -> Tuned:
    """Try values for the entry `name` of `methods` until there are `trials` trials; an interrupted search resumes."""
    entry = find_entry(settings.methods, name)
    base = Encoder.load(BASE)
    start = scores(base)
    study = _study(store, settings, entry, base)
    with parent_run("tune", f"tune {name}", settings, {"entry": name, "trials": trials}) as parent:
        ended = run_trials(study, f"tune {name}", trials, partial(_try_one, settings, entry, study, scores, start))
        if not (complete := [trial for trial in ended if trial.value is not None and trial.user_attrs]):
            raise InputError(f"no trial of '{name}' was completed: give more --trials")
        kept = [trial for trial in complete if not trial.user_attrs["broken"]]
        best = max(kept or complete, key=lambda trial: trial.user_attrs["gain"])
        gain = ShownGain(*best.user_attrs["shown_gain"])
        parent.log_metrics({"gain": gain.value})
    values: dict[str, float | int] = {"lr": float(f"{best.params['lr']:.3g}")}
    values["epochs"] = _epochs(entry, best.params["epochs_factor"])
    facts = best.user_attrs
    if facts["share"] < 1:
        values["weight_ensemble"] = facts["share"]
    broken = () if kept else tuple(facts["broken"])
    return Tuned(values, gain, facts["scores"], start.shown, len(ended), len(ended) - len(complete), broken)


def planned(settings: Settings, name: str, trials: int) -> str:
    """The plan of a search in words."""
    entry = find_entry(settings.methods, name)
    lr = entry.method.settings.lr
    return (
        f"tune {name}: {trials} trials; lr {lr / _WIDTH:.2g} to {lr * _WIDTH:.2g}; epochs "
        f"{', '.join(str(_epochs(entry, factor)) for factor in _EPOCHS)}; shares of the trained weights "
        f"{', '.join(map(str, SHARES))}; scored by {', '.join(gate_metrics(settings))} on the validation split"
    )


def _epochs(entry: Entry, factor: float) -> int:
    return max(1, round(entry.method.settings.epochs * factor))


def _study(store: str, settings: Settings, entry: Entry, base: Encoder) -> optuna.Study:
    """The search's study; another entry, base, gate or training table has another one."""
    files = sorted(entry.reads.rglob("*.parquet")) if entry.reads.is_dir() else [entry.reads]
    made_of = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files if path.is_file()]
    own, seed = entry.method.settings, settings.train.seed
    parts = entry.name, repr(own), base.sidecar.weights_sha256, settings.promote.model_dump_json(), str(seed), "halves"
    return open_study(
        store,
        f"tune-{content_hash(*parts, *made_of)[:16]}",
        optuna.samplers.TPESampler(seed=seed, n_startup_trials=5),
        [{"lr": own.lr, "epochs_factor": 1.0}],
        direction="maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    )


def _try_one(
    settings: Settings,
    entry: Entry,
    study: optuna.Study,
    scores: Scores,
    start: HalfScores,
    trial: optuna.Trial,
) -> None:
    """Train and score one proposal; a run whose early metric is in the lower half is stopped."""
    own = entry.method.settings
    lr = trial.suggest_float("lr", own.lr / _WIDTH, own.lr * _WIDTH, log=True)
    epochs = _epochs(entry, trial.suggest_categorical("epochs_factor", _EPOCHS))
    called = f"{entry.name}-trial-{trial.number}"
    folder, options = STATE / called, {"lr": lr, "epochs": epochs, "weight_ensemble": 1.0}
    method = {"method": entry.method.name} | settings.methods[entry.name] | options
    often = settings.train.model_copy(update={"validate_every": min(_EVERY, settings.train.validate_every or _EVERY)})
    changed = settings.model_copy(update={"methods": {called: method}, "train": often})
    seen = 0

    def observe(metrics: Mapping[str, float], _step: int) -> None:
        nonlocal seen
        if _EARLY in metrics:
            seen += 1
            trial.report(metrics[_EARLY], seen)
            if trial.should_prune():
                raise StoppedEarlyError

    if not train(changed, called, TrainingFiles(validated=entry.reads, models=STATE), observe):
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return
    judged = (_judged(settings, start.chosen, share, found) for share, found in _shared(folder, scores))
    verdict = max(judged, key=_value)
    metrics = {"gain": verdict["gain"], "share": verdict["share"]}
    add_metrics(folder, metrics | {f"validation/{metric}": value for metric, value in verdict["scores"].items()})
    for key, fact in verdict.items():
        trial.set_user_attr(key, fact)
    study.tell(trial, _value(verdict))
    shutil.rmtree(folder)


def _shared(folder: Path, scores: Scores) -> Iterator[tuple[float, HalfScores]]:
    """Share of the trained weights -> metrics on the halves of the validation pictures."""
    encoder, base = Encoder.load(folder), weights_of(Encoder.load(BASE))
    trained = {name: tensor.clone() for name, tensor in weights_of(encoder).items()}
    alike = trained.keys() == base.keys() and all(trained[name].shape == base[name].shape for name in base)
    for share in SHARES if alike else SHARES[:1]:
        if share < 1:
            averaged = {name: torch.lerp(base[name], tensor, share) for name, tensor in trained.items()}
            encoder.model.load_state_dict(averaged)
        yield share, scores(encoder)


def _judged(settings: Settings, start: Mapping[str, float], share: float, found: HalfScores) -> dict[str, Any]:
    """The gain and the losses of a trial; values are signed, so that higher is better."""
    policy, scores = settings.promote, found.chosen
    beyond = {
        guard: start[guard] - scores[guard] - allowed
        for guard, allowed in policy.active_guards.items()
        if start[guard] - scores[guard] > allowed
    }
    gain = scores[policy.metric] - start[policy.metric]
    shown = {"scores": found.shown, "shown_gain": astuple(found.gain)}
    return {"share": share, "gain": gain, "broken": list(beyond), "loss": sum(beyond.values())} | shown


def _value(verdict: Mapping[str, Any]) -> float:
    return float(verdict["gain"] - _PENALTY * verdict["loss"])
