"""Mixes of the study: stage `repeat_mix`, and the search for the best shares, which resumes after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.checking import check_names
from components.core.system.errors import InputError
from components.core.tracking import make_client
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.evaluate import ValidationScores
from components.evaluation.scoring.results import Folders
from components.training.mixing.mix import weights_of
from components.training.tuning.mixes import search
from research.claims import repeat_mix

_METHODS = {name: {"method": "paraclip"} for name in ("one", "other")}
_MIXES = {"both": {"a": "one", "b": "other", "weights": [0.5, 0.25]}}


def _with_mixes(raw: dict[str, Any], **study: Any) -> Settings:
    wanted = {"methods": raw["methods"] | _METHODS, "mixes": _MIXES, "study": study}
    return Settings.model_validate(raw | wanted | {"compare_encoders": [*raw["compare_encoders"], *_METHODS, *_MIXES]})


def test_the_seeds_encoders_are_mixed_and_the_mix_is_scored(
    raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def mix(settings: Settings, name: str, models: Path, output: Path) -> None:
        seen["mixed"] = (settings.train.seed, name, models)
        output.mkdir()

    def evaluate(settings: Settings, name: str, folders: Folders) -> None:
        seen["scored"] = (settings.train.seed, name, folders.reports, (folders.models / name).is_dir())

    monkeypatch.setattr("components.training.mixing.mix.run", mix)
    monkeypatch.setattr("components.evaluation.scoring.evaluate.run", evaluate)
    folders = Folders(models=tmp_path / "models", reports=tmp_path / "reports")
    repeat_mix.run(_with_mixes(raw_params), 7, "both", folders)
    assert seen == {"mixed": (7, "both", folders.models), "scored": (7, "both", folders.reports, True)}
    assert not folders.models.exists()


def test_members_of_a_mix_of_the_study_must_be_in_the_study(raw_params: dict[str, Any]) -> None:
    check_names(_with_mixes(raw_params, encoders=["one", "other"], mixes=["both"]))
    with pytest.raises(InputError, match=r"study\.encoders lacks a member of study\.mixes\.both: 'other'"):
        check_names(_with_mixes(raw_params, encoders=["one"], mixes=["both"]))
    with pytest.raises(InputError, match=r"study\.mixes: 'bath'"):
        check_names(_with_mixes(raw_params, encoders=["one", "other"], mixes=["bath"]))


@dataclass
class Evaluator:
    """`up` is the mean shift of a weight, `down` what is left of 1."""

    start: float
    shifts: list[float]

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        shift = float(weights_of(encoder)["text_projection"].mean()) - self.start
        self.shifts.append(shift)
        return {"up": shift, "down": 1 - shift}


@pytest.fixture
def evaluator(
    tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None]
) -> Evaluator:
    """Encoders `one`, whose weights are a whole above the base's, and `none`, whose are the base's."""
    track_in(tmp_path)
    start = {name: weights.clone() for name, weights in weights_of(tiny_encoder).items()}
    for name, moved in (("base", 0.0), ("one", 1.0), ("none", 0.0)):
        tiny_encoder.model.load_state_dict(start | {"text_projection": start["text_projection"] + moved})
        tiny_encoder.save(tmp_path / "models" / name)
    return Evaluator(float(start["text_projection"].mean()), [])


def _search(
    settings: Settings, tmp_path: Path, trials: int, scores: Evaluator, names: tuple[str, ...] = ("one", "none")
) -> Any:
    return search(settings, names, trials, scores, f"sqlite:///{tmp_path / 'search.db'}", tmp_path / "models")


def test_the_smallest_largest_shortfall_is_found_also_after_an_interruption(
    evaluator: Evaluator, settings: Settings, tmp_path: Path
) -> None:
    found = _search(settings, tmp_path, 3, evaluator)
    # The best single encoders have 1 on either need; half of `one` is half a point short of both.
    assert found.best["up"] == (pytest.approx(1, abs=1e-5), "one")
    assert found.best["down"][0] == pytest.approx(1, abs=1e-5)
    assert (found.mix.weights[0], found.shortfall, found.trials) == (*[pytest.approx(0.5, abs=0.1)] * 2, 3)
    before = len(evaluator.shifts)
    resumed = _search(settings, tmp_path, 5, evaluator)
    # Base and members are scored a second time, the earlier mixes are not.
    assert len(evaluator.shifts) - before == 3 + 2
    finished = _search(settings, tmp_path, 5, evaluator)
    assert (finished.mix, finished.trials) == (resumed.mix, resumed.trials) == (resumed.mix, 5)
    client = make_client()
    experiment = client.get_experiment_by_name(settings.dataset.name)
    runs = client.search_runs([experiment.experiment_id])
    parents = {run.info.run_id for run in runs if run.info.run_name == "search"}
    assert len(parents) == 3
    mixes = [run for run in runs if run.data.tags.get("mlflow.parentRunId") in parents]
    assert sorted(run.info.run_name for run in mixes) == [f"search mix-{number}" for number in range(5)]
    assert all({"shortfall", "validation/up"} <= set(run.data.metrics) for run in mixes)


def test_one_encoder_is_not_a_mix(evaluator: Evaluator, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two"):
        _search(settings, tmp_path, 3, evaluator, ("one",))


def test_a_metric_without_a_benchmark_is_refused(settings: Settings) -> None:
    with pytest.raises(InputError, match=r"evaluate.benchmarks lacks the benchmark of none/none"):
        ValidationScores.of(settings, ["none/none"])
