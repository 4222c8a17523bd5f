"""Searches the shares of a mix (`components.training.mixing`) for all needs, on the validation split.

Optuna's tree-structured Parzen estimator, with seed `train.seed`, tries all pairs of the given encoders. The objective
is the largest shortfall: over all metrics, the gap to the best of the given encoders and the base. No test picture or
text is used; stage `evaluate` scores the best mix on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import optuna
from torch import Tensor

from components.core.compute.metrics import Features
from components.core.settings import Mix, Settings
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.files import content_hash
from components.core.tables.folders import BASE, EMBEDDINGS, EVALUATION, PAIRS, VALIDATION
from components.core.tracking import parent_run, tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project import ProjectBenchmark, find_benchmark, table_files
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.evaluate import image_features, score
from components.training.mixing.mix import check_members, mixed, weights_of

STORE = "sqlite:///state/search.db"


@dataclass(frozen=True)
class MixEvaluator:
    """Scores encoders of one image tower on the validation split."""

    settings: Settings
    families: Mapping[str, str]
    benchmarks: Sequence[ProjectBenchmark]
    image_ids: Sequence[str]
    image_features: Features

    @staticmethod
    def of(settings: Settings, families: Mapping[str, str], encoder: Encoder) -> MixEvaluator:
        """An evaluator with the image features of this encoder."""
        names = settings.evaluate.benchmarks
        chosen = {name for metric in families.values() for name in names if metric.split("/")[0].startswith(name)}
        for metric in families.values():
            if not any(metric.split("/")[0].startswith(name) for name in chosen):
                raise InputError(f"params.yaml: evaluate.benchmarks lacks the benchmark of {metric}: add it")
        benchmarks = [find_benchmark(name) for name in names if name in chosen]
        table_files(benchmarks, EVALUATION / VALIDATION)
        ids, features = image_features(encoder, EMBEDDINGS, PAIRS / "val.parquet", settings.embed.batch_size)
        return MixEvaluator(settings, families, benchmarks, ids, features)

    def scores(self, encoder: Encoder) -> dict[str, float]:
        """Need -> value, higher being better."""
        under_test = EncoderUnderTest(encoder.sidecar.name, _Quiet(encoder), "")
        # A trial does not need intervals.
        evaluate = self.settings.evaluate.model_copy(update={"bootstrap": 1})
        places = EVALUATION / VALIDATION, evaluate.top_k, self.image_ids, self.image_features
        _, results = score(self.benchmarks, ProjectContext(under_test, *places), evaluate)
        by_need = {need: results[metric] for need, metric in self.families.items()}
        return {need: one.value if one.higher_is_better else -one.value for need, one in by_need.items()}


@dataclass(frozen=True)
class _Quiet:
    """An encoder without a progress bar."""

    encoder: Encoder

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        return self.encoder.embed_texts(texts, batch_size)


@dataclass(frozen=True)
class MixSearchResult:
    """The best mix of a search.

    Attributes:
        mix: as an entry of `mixes`.
        scores: need -> value on the validation split.
        best: need -> the best value of the given encoders and the base, and the name of the encoder.
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

    def best_single(self, evaluator: MixEvaluator) -> dict[str, tuple[float, str]]:
        """Need -> the best value of the members and the base, and the encoder's name."""
        best: dict[str, tuple[float, str]] = {}
        for name, weights in {BASE.name: self.base, **self.weights}.items():
            self.encoder.model.load_state_dict(dict(weights))
            for need, value in evaluator.scores(self.encoder).items():
                best[need] = max(best.get(need, (value, name)), (value, name))
        return best


def search(
    settings: Settings,
    names: Sequence[str],
    families: Mapping[str, str],
    trials: int,
    store: str = STORE,
    models: Path = BASE.parent,
) -> MixSearchResult:
    """Try mixes until there are `trials` of them; an interrupted search resumes."""
    members = Members.load(names, models)
    evaluator = MixEvaluator.of(settings, families, members.encoder)
    best = members.best_single(evaluator)
    inputs = content_hash(*members.hashes, repr(sorted(families.items())))
    study = _study(store, names, settings.train.seed, inputs)
    left = max(0, trials - len(_finished(study)))
    with parent_run("search", "search", settings, {"from": ",".join(names), "trials": trials}) as parent:
        for _ in track(range(left), "search", left, "trial"):
            _try_one(settings, study, names, members, evaluator, best)
        winner = study.best_trial
        assert winner.value is not None
        parent.log_metrics({"shortfall": winner.value})
    scores = {need: float(winner.user_attrs[need]) for need in families}
    return MixSearchResult(_suggested(winner, names), scores, best, winner.value, len(_finished(study)))


def _try_one(
    settings: Settings,
    study: optuna.Study,
    names: Sequence[str],
    members: Members,
    evaluator: MixEvaluator,
    best: Mapping[str, tuple[float, str]],
) -> None:
    trial = study.ask()
    mix = _suggested(trial, names)
    scores = evaluator.scores(members.become(mix))
    shortfall = max(best[need][0] - value for need, value in scores.items())
    with tracked_run("search", f"mix-{trial.number}", settings, mix.model_dump(mode="json"), {}) as run:
        run.log_metrics({"shortfall": shortfall} | {f"validation/{need}": value for need, value in scores.items()})
    for need, value in scores.items():
        trial.set_user_attr(need, value)
    study.tell(trial, shortfall)


def _suggested(trial: Any, names: Sequence[str]) -> Mix:
    """The mix of a new or finished trial."""
    pairs = [f"{first}+{second}" for first, second in combinations(names, 2)]
    if isinstance(trial, optuna.trial.FrozenTrial):
        chosen, shares = trial.params["pair"], (trial.params["first_share"], trial.params["second_share"])
    else:
        chosen = trial.suggest_categorical("pair", pairs)
        shares = (trial.suggest_float("first_share", 0, 1), trial.suggest_float("second_share", 0, 1))
    first, second = next(pair for pair in combinations(names, 2) if "+".join(pair) == chosen)
    return Mix(a=first, b=second, weights=(round(shares[0], 4), round(shares[1], 4)))


def _study(store: str, names: Sequence[str], seed: int, inputs: str) -> optuna.Study:
    """The search's study in the store; other encoders, families or seeds have another one."""
    name = f"mix-{content_hash(*names, inputs, str(seed))[:16]}"
    study = create_study(store, name, optuna.samplers.TPESampler(seed=seed))
    if not study.trials:
        for first, second in combinations(names, 2):
            for shares in ((0.5, 0.5), (1.0, 1.0)):
                study.enqueue_trial({"pair": f"{first}+{second}", "first_share": shares[0], "second_share": shares[1]})
    return study


def create_study(store: str, name: str, sampler: optuna.samplers.BaseSampler, **options: Any) -> optuna.Study:
    """The study of that name in the store, created if it does not exist; `options` are those of Optuna."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if store.startswith("sqlite:///"):
        Path(store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return optuna.create_study(study_name=name, storage=store, sampler=sampler, load_if_exists=True, **options)


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
