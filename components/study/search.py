"""Searches the shares of a mix (`components.mixing`) that serves all needs, on the validation split.

Tried are all pairs of the encoders given, by Optuna's tree-structured Parzen estimator from `train.seed`. A mix is as
bad as its largest shortfall: over all families of a claims file, how much worse it is than the best of the encoders
given and the base. No test picture or text is looked at; what the mix found is worth on those, stage `evaluate` says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import optuna
from torch import Tensor

from components.benchmarks.embedded import EmbeddedBenchmark, find_benchmark, table_files
from components.benchmarks.encoding.context import EmbeddedContext, EncoderUnderTest
from components.core.errors import InputError
from components.core.files import content_hash
from components.core.folders import BASE, EMBEDDINGS, EVALUATION, PAIRS, VALIDATION
from components.core.metrics import Features
from components.core.progress import track
from components.core.settings import Mix, Settings
from components.encoders.adapter.encoder import Encoder
from components.evaluation.evaluate import image_features, score
from components.mixing.mix import check_members, mixed, weights_of
from components.tracking import PARENT_RUN, TrackedRun, tracked_run

STORE = "sqlite:///state/search.db"
_ONE_RESAMPLE = 1
"""A trial needs values and no intervals."""


@dataclass(frozen=True)
class Judge:
    """What encoders of one image tower are worth on the validation split.

    Attributes:
        families: need -> metric, in the order shown.
    """

    settings: Settings
    families: Mapping[str, str]
    benchmarks: Sequence[EmbeddedBenchmark]
    image_ids: Sequence[str]
    image_features: Features

    @staticmethod
    def of(settings: Settings, families: Mapping[str, str], encoder: Encoder) -> Judge:
        """A judge that shows every encoder the pictures as this one sees them.

        Raises:
            InputError: a family's benchmark is not in `evaluate.benchmarks`, or its table is missing.
        """
        names = settings.evaluate.benchmarks
        chosen = {name for metric in families.values() for name in names if metric.split("/")[0].startswith(name)}
        for metric in families.values():
            if not any(metric.split("/")[0].startswith(name) for name in chosen):
                raise InputError(f"params.yaml: evaluate.benchmarks lacks what measures {metric}: add it")
        benchmarks = [find_benchmark(name) for name in names if name in chosen]
        table_files(benchmarks, EVALUATION / VALIDATION)
        ids, features = image_features(encoder, EMBEDDINGS, PAIRS / "val.parquet", settings.embed.batch_size)
        return Judge(settings, families, benchmarks, ids, features)

    def worth(self, encoder: Encoder) -> dict[str, float]:
        """Need -> value, higher being better."""
        under_test = EncoderUnderTest(encoder.sidecar.name, _Quiet(encoder), "")
        evaluate = self.settings.evaluate.model_copy(update={"bootstrap": _ONE_RESAMPLE})
        places = EVALUATION / VALIDATION, evaluate.ks, self.image_ids, self.image_features
        _, results = score(self.benchmarks, EmbeddedContext(under_test, *places), evaluate)
        found = {need: results[metric] for need, metric in self.families.items()}
        return {need: one.value if one.higher_is_better else -one.value for need, one in found.items()}


@dataclass(frozen=True)
class _Quiet:
    """An encoder without a progress bar of its own."""

    encoder: Encoder

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        return self.encoder.embed_texts(texts, batch_size)


@dataclass(frozen=True)
class Outcome:
    """The best mix of a search.

    Attributes:
        mix: as an entry of `mixes`.
        worth: need -> value on the validation split.
        best: need -> the best value of the encoders given and the base, and whose it is.
        shortfall: the mix's largest.
        trials: how many mixes were tried, those of earlier runs of the same search included.
    """

    mix: Mix
    worth: dict[str, float]
    best: dict[str, tuple[float, str]]
    shortfall: float
    trials: int


@dataclass(frozen=True)
class Members:
    """The base, an encoder that becomes one mix after the other, and what the members' weights are."""

    encoder: Encoder
    base: Mapping[str, Tensor]
    learnt: Mapping[str, Mapping[str, Tensor]]
    hashes: Sequence[str]

    @staticmethod
    def load(names: Sequence[str], models: Path) -> Members:
        """Load them all.

        Raises:
            InputError: fewer than two are named, or one is missing or has other towers than the base.
        """
        if len(names) < 2:
            raise InputError("give at least two encoders to mix: --from paraclip --from semclip")
        encoder, made = Encoder.load(models / BASE.name), {name: Encoder.load(models / name) for name in names}
        check_members(made)
        base = {name: weights.clone() for name, weights in weights_of(encoder).items()}
        learnt = {name: weights_of(one) for name, one in made.items()}
        mixed(base, learnt, (0.0,) * len(learnt))
        return Members(encoder, base, learnt, [one.sidecar.weights_sha256 for one in (encoder, *made.values())])

    def become(self, mix: Mix) -> Encoder:
        """The encoder of a mix."""
        members = {name: self.learnt[name] for name in (mix.first, mix.second)}
        self.encoder.model.load_state_dict(mixed(self.base, members, mix.shares))
        return self.encoder

    def best_alone(self, judge: Judge) -> dict[str, tuple[float, str]]:
        """Need -> the best value of the members and the base, and whose it is."""
        best: dict[str, tuple[float, str]] = {}
        for name, weights in {BASE.name: self.base, **self.learnt}.items():
            self.encoder.model.load_state_dict(dict(weights))
            for need, value in judge.worth(self.encoder).items():
                best[need] = max(best.get(need, (value, name)), (value, name))
        return best


def search(
    settings: Settings,
    names: Sequence[str],
    families: Mapping[str, str],
    trials: int,
    store: str = STORE,
    models: Path = BASE.parent,
) -> Outcome:
    """Try mixes until there are `trials` of them; a search that was stopped goes on.

    Raises:
        InputError: fewer than two encoders are named, one is missing or has other towers, or the validation tables
            are missing.
    """
    members = Members.load(names, models)
    judge = Judge.of(settings, families, members.encoder)
    best = members.best_alone(judge)
    question = content_hash(*members.hashes, repr(sorted(families.items())))
    study = _study(store, names, settings.train.seed, question)
    left = max(0, trials - len(_finished(study)))
    with _parent(settings, names, trials) as parent:
        for _ in track(range(left), "search", left, "trial"):
            _try_one(settings, study, names, members, judge, best)
        found = study.best_trial
        assert found.value is not None
        parent.log_metrics({"shortfall": found.value})
    worth = {need: float(found.user_attrs[need]) for need in families}
    return Outcome(_suggested(found, names), worth, best, found.value, len(_finished(study)))


def _try_one(
    settings: Settings,
    study: optuna.Study,
    names: Sequence[str],
    members: Members,
    judge: Judge,
    best: Mapping[str, tuple[float, str]],
) -> None:
    trial = study.ask()
    mix = _suggested(trial, names)
    worth = judge.worth(members.become(mix))
    shortfall = max(best[need][0] - value for need, value in worth.items())
    with tracked_run("search", f"mix-{trial.number}", settings, mix.model_dump(mode="json"), {}) as run:
        run.log_metrics({"shortfall": shortfall} | {f"validation/{need}": value for need, value in worth.items()})
    for need, value in worth.items():
        trial.set_user_attr(need, value)
    study.tell(trial, shortfall)


def _suggested(trial: Any, names: Sequence[str]) -> Mix:
    """The mix of a trial that is asked for, or that was finished."""
    pairs = [f"{first}+{second}" for first, second in combinations(names, 2)]
    if isinstance(trial, optuna.trial.FrozenTrial):
        chosen, shares = trial.params["pair"], (trial.params["first_share"], trial.params["second_share"])
    else:
        chosen = trial.suggest_categorical("pair", pairs)
        shares = (trial.suggest_float("first_share", 0, 1), trial.suggest_float("second_share", 0, 1))
    first, second = next(pair for pair in combinations(names, 2) if "+".join(pair) == chosen)
    return Mix(first=first, second=second, shares=(round(shares[0], 4), round(shares[1], 4)))


def _study(store: str, names: Sequence[str], seed: int, question: str) -> optuna.Study:
    """The search's record in the store; another one once an encoder or what is asked is another one."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if store.startswith("sqlite:///"):
        Path(store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    name = f"mix-{content_hash(*names, question, str(seed))[:16]}"
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(study_name=name, storage=store, sampler=sampler, load_if_exists=True)
    if not study.trials:
        for first, second in combinations(names, 2):
            for shares in ((0.5, 0.5), (1.0, 1.0)):
                study.enqueue_trial({"pair": f"{first}+{second}", "first_share": shares[0], "second_share": shares[1]})
    return study


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])


@contextmanager
def _parent(settings: Settings, names: Sequence[str], trials: int) -> Iterator[TrackedRun]:
    """The MLflow run that the runs of all trials are nested under."""
    with tracked_run("search", "search", settings, {"from": ",".join(names), "trials": trials}, {}) as parent:
        before = os.environ.get(PARENT_RUN)
        os.environ[PARENT_RUN] = parent.id
        try:
            yield parent
        finally:
            os.environ.pop(PARENT_RUN)
            if before is not None:
                os.environ[PARENT_RUN] = before
