"""Searches the shares of a mix (`components.training.mixing`) for all metrics, on the validation split.

Optuna's tree-structured Parzen estimator, with seed `train.seed`, tries all pairs of the given encoders. The objective
is the largest shortfall: over all metrics, the gap to the best of the given encoders and the base. One half of the
validation pictures chooses, and the other half shows the scores. No test picture or text is used; stage `evaluate`
scores the best mix on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import optuna
from torch import Tensor

from components.core.settings import Mix, Settings
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.folders import BASE
from components.core.tracking import parent_run, tracked_run
from components.encoders.adapter.encoder import Encoder
from components.training.mixing.mix import check_members, mixed, weights_of
from components.training.tuning.trials import STORE, Scores, open_study, run_trials


@dataclass(frozen=True)
class MixSearchResult:
    """The best mix of a search.

    Attributes:
        mix: as an entry of `mixes`.
        scores: metric -> value on the half of the validation pictures that chose nothing.
        best: metric -> there, the value of the best of the given encoders and the base, and its name.
        shortfall: there, the largest.
        trials: number of mixes, including those of earlier runs of the same search.
    """

    mix: Mix
    scores: dict[str, float]
    best: dict[str, tuple[float, str]]
    shortfall: float
    trials: int


@dataclass(frozen=True)
class Members:
    """The base, the members' weights, and an encoder that takes the weights of one mix after another."""

    encoder: Encoder
    base: Mapping[str, Tensor]
    weights: Mapping[str, Mapping[str, Tensor]]
    hashes: Sequence[str]

    @staticmethod
    def load(names: Sequence[str], models: Path) -> Members:
        """Load them all."""
        if len(names) < 2:
            raise InputError("give at least two encoders to mix: --from paraclip --from semclip")
        encoder, members = Encoder.load(models / BASE.name), {name: Encoder.load(models / name) for name in names}
        check_members(members)
        base = {name: tensor.clone() for name, tensor in weights_of(encoder).items()}
        weights = {name: weights_of(one) for name, one in members.items()}
        mixed(base, weights, (0.0,) * len(weights))
        return Members(encoder, base, weights, [one.sidecar.weights_sha256 for one in (encoder, *members.values())])

    def become(self, mix: Mix) -> Encoder:
        """The encoder of a mix."""
        members = {name: self.weights[name] for name in (mix.a, mix.b)}
        self.encoder.model.load_state_dict(mixed(self.base, members, mix.weights))
        return self.encoder

    def best_single(self, scores: Scores) -> dict[str, tuple[float, str, float]]:
        """Metric -> the best value of the members and the base, the encoder's name, and its value on the other half."""
        best: dict[str, tuple[float, str, float]] = {}
        for name, weights in {BASE.name: self.base, **self.weights}.items():
            self.encoder.model.load_state_dict(dict(weights))
            found = scores(self.encoder)
            for metric, value in found.chosen.items():
                best[metric] = max(best.get(metric, (value, "", 0.0)), (value, name, found.shown[metric]))
        return best


def search(
    settings: Settings,
    names: Sequence[str],
    trials: int,
    scores: Scores,
    store: str = STORE,
    models: Path = BASE.parent,
) -> MixSearchResult:
    """Try mixes of the encoders `names` until there are `trials` of them; an interrupted search resumes."""
    members = Members.load(names, models)
    best = members.best_single(scores)
    # Other encoders, metrics or seeds have another study.
    made_of = content_hash(*names, *members.hashes, repr(sorted(best)), str(settings.train.seed), "halves")
    pairs = {f"{first}+{second}": (first, second) for first, second in combinations(names, 2)}
    shares = (0.5, 1.0)
    first = [{"pair": pair, "first_share": share, "second_share": share} for pair in pairs for share in shares]
    sampler = optuna.samplers.TPESampler(seed=settings.train.seed)
    study = open_study(store, f"mix-{made_of[:16]}", sampler, first)
    with parent_run("search", "search", settings, {"from": ",".join(names), "trials": trials}) as parent:
        ended = run_trials(study, "search", trials, partial(_try_one, settings, study, pairs, members, scores, best))
        winner = study.best_trial
        parent.log_metrics({"shortfall": study.best_value})
    mix = _mix(winner.params, pairs)
    found = scores(members.become(mix)).shown
    shown = {metric: (value, name) for metric, (_, name, value) in best.items()}
    shortfall = max(shown[metric][0] - value for metric, value in found.items())
    return MixSearchResult(mix, found, shown, shortfall, len(ended))


def _try_one(
    settings: Settings,
    study: optuna.Study,
    pairs: Mapping[str, tuple[str, str]],
    members: Members,
    scores: Scores,
    best: Mapping[str, tuple[float, str, float]],
    trial: optuna.Trial,
) -> None:
    trial.suggest_categorical("pair", list(pairs))
    for share in ("first_share", "second_share"):
        trial.suggest_float(share, 0, 1)
    mix = _mix(trial.params, pairs)
    found = scores(members.become(mix)).chosen
    shortfall = max(best[metric][0] - value for metric, value in found.items())
    with tracked_run("search", f"mix-{trial.number}", settings, mix.model_dump(mode="json"), {}) as run:
        run.log_metrics({"shortfall": shortfall} | {f"validation/{metric}": value for metric, value in found.items()})
    study.tell(trial, shortfall)


def _mix(params: Mapping[str, Any], pairs: Mapping[str, tuple[str, str]]) -> Mix:
    """The mix of a trial's parameters."""
    first, second = pairs[params["pair"]]
    return Mix(a=first, b=second, weights=(round(params["first_share"], 4), round(params["second_share"], 4)))
