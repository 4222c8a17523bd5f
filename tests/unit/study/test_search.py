"""The search finds the shares that serve all needs, goes on where it was stopped, and asks validation data alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import InputError
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.mixing.mix import weights_of
from components.study import search as searching
from components.study.search import search
from components.tracking import make_client

FAMILIES = {"up": "p/up", "down": "p/down"}


@dataclass
class Judge:
    """`up` is the mean shift of a weight, `down` what is left of 1."""

    start: float
    asked: list[float]

    def worth(self, encoder: Encoder) -> dict[str, float]:
        """Both needs."""
        shift = float(weights_of(encoder)["text_projection"].mean()) - self.start
        self.asked.append(shift)
        return {"up": shift, "down": 1 - shift}


@pytest.fixture
def judge(
    tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None]
) -> Judge:
    """Encoders `one`, whose weights are a whole above the base's, and `none`, whose are the base's."""
    track_in(tmp_path)
    start = {name: weights.clone() for name, weights in weights_of(tiny_encoder).items()}
    for name, moved in (("base", 0.0), ("one", 1.0), ("none", 0.0)):
        tiny_encoder.model.load_state_dict(start | {"text_projection": start["text_projection"] + moved})
        tiny_encoder.save(tmp_path / "models" / name)
    made = Judge(float(start["text_projection"].mean()), [])
    monkeypatch.setattr(searching.Judge, "of", staticmethod(lambda *_: made))
    return made


def _search(settings: Settings, tmp_path: Path, trials: int, names: tuple[str, ...] = ("one", "none")) -> Any:
    return search(settings, names, FAMILIES, trials, f"sqlite:///{tmp_path / 'search.db'}", tmp_path / "models")


def test_the_least_of_largest_shortfalls_is_found(judge: Judge, settings: Settings, tmp_path: Path) -> None:
    found = _search(settings, tmp_path, 25)
    # The best alone are 1 at both; half of what `one` learnt is half a point short of both.
    assert found.best["up"] == (pytest.approx(1, abs=1e-5), "one")
    assert found.best["down"][0] == pytest.approx(1, abs=1e-5)
    assert found.mix.shares[0] == pytest.approx(0.5, abs=0.1)
    assert found.shortfall == pytest.approx(0.5, abs=0.1)
    assert found.trials == 25


def test_a_stopped_search_goes_on_and_is_repeatable(judge: Judge, settings: Settings, tmp_path: Path) -> None:
    _search(settings, tmp_path, 4)
    before = len(judge.asked)
    found = _search(settings, tmp_path, 6)
    # Base and members are scored again, the mixes of before are not.
    assert len(judge.asked) - before == 3 + 2
    assert found.trials == 6
    again = _search(settings, tmp_path, 6)
    assert (again.mix, again.trials) == (found.mix, 6)


def test_every_mix_is_a_run_below_one_parent(judge: Judge, settings: Settings, tmp_path: Path) -> None:
    _search(settings, tmp_path, 3)
    client = make_client()
    experiment = client.get_experiment_by_name(settings.world.name)
    runs = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if run.info.run_name == "search"]
    assert len(parents) == 1
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parents[0].info.run_id]
    assert sorted(run.info.run_name for run in children) == ["mix-0", "mix-1", "mix-2"]
    assert all({"shortfall", "validation/up"} <= set(run.data.metrics) for run in children)


def test_one_encoder_is_no_mix(judge: Judge, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two"):
        _search(settings, tmp_path, 3, ("one",))


def test_a_need_that_no_benchmark_measures_is_told(settings: Settings, tiny_encoder: Encoder) -> None:
    with pytest.raises(InputError, match=r"evaluate.benchmarks lacks what measures none/none"):
        searching.Judge.of(settings, {"need": "none/none"}, tiny_encoder)
