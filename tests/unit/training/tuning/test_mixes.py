"""Mixes: the base plus weighted differences of two encoders, also of the study, and the search for the best shares."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from components.core.compute.provenance import git_commit
from components.core.settings import Settings
from components.core.system.checking import check_names
from components.core.system.errors import InputError
from components.core.tracking import make_client
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.sidecar import Sidecar
from components.encoders.under_test import HalfScores, ShownGain
from components.evaluation.scoring.results import Folders
from components.evaluation.scoring.validation import ValidationScores
from components.training.mixing.mix import mixed, run, weights_of
from components.training.tuning.mixes import search
from research.claims import repeat_mix

_METHODS = {name: {"method": "paraclip"} for name in ("one", "other")}
_MIXES = {"both": {"a": "one", "b": "other", "weights": [0.5, 0.25]}}


def _with_mixes(raw: dict[str, Any], **study: Any) -> Settings:
    wanted = {"methods": raw["methods"] | _METHODS, "mixes": _MIXES, "study": study}
    return Settings.model_validate(raw | wanted | {"compare_encoders": [*raw["compare_encoders"], *_METHODS, *_MIXES]})


def test_a_seeds_mix_is_scored(raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def _save_moved(encoder: Encoder, folder: Path, projection: torch.Tensor) -> None:
    """Save the encoder with another text projection."""
    weights_of(encoder)["text_projection"].copy_(projection)
    encoder.save(folder)


@dataclass
class Evaluator:
    """`up` is the mean shift of a weight, `down` what is left of 1; the half that chooses nothing shows a tenth."""

    start: float
    shifts: list[float]

    def __call__(self, encoder: Encoder) -> HalfScores:
        shift = float(weights_of(encoder)["text_projection"].mean()) - self.start
        self.shifts.append(shift)
        chosen = {"up": shift, "down": 1 - shift}
        return HalfScores(chosen, {name: value / 10 for name, value in chosen.items()}, ShownGain(0, 0, 0, 0))


@pytest.fixture
def evaluator(
    tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track_in: Callable[[Path], None]
) -> Evaluator:
    """Encoders `one`, whose weights are a whole above the base's, and `none`, whose are the base's."""
    track_in(tmp_path)
    start = weights_of(tiny_encoder)["text_projection"].clone()
    for name, moved in (("base", 0.0), ("one", 1.0), ("none", 0.0)):
        _save_moved(tiny_encoder, tmp_path / "models" / name, start + moved)
    return Evaluator(float(start.mean()), [])


def _search(
    settings: Settings, tmp_path: Path, trials: int, scores: Evaluator, names: tuple[str, ...] = ("one", "none")
) -> Any:
    return search(settings, names, trials, scores, f"sqlite:///{tmp_path / 'search.db'}", tmp_path / "models")


def test_the_smallest_shortfall_is_found(evaluator: Evaluator, settings: Settings, tmp_path: Path) -> None:
    found = _search(settings, tmp_path, 3, evaluator)
    # The best single encoders have 1 on either need; half of `one` is half a point short of both.
    assert found.best["up"] == (pytest.approx(0.1, abs=1e-6), "one")
    assert found.best["down"][0] == pytest.approx(0.1, abs=1e-6)
    assert (found.mix.weights[0], found.trials) == (pytest.approx(0.5, abs=0.1), 3)
    assert found.shortfall == pytest.approx(0.05, abs=0.01)
    before = len(evaluator.shifts)
    resumed = _search(settings, tmp_path, 5, evaluator)
    # Base, members and the chosen mix are scored a second time, the earlier mixes are not.
    assert len(evaluator.shifts) - before == 3 + 2 + 1
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


def test_one_encoder_is_no_mix(evaluator: Evaluator, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two"):
        _search(settings, tmp_path, 3, evaluator, ("one",))
    with pytest.raises(InputError, match=r"evaluate.benchmarks lacks the benchmark of none/none"):
        ValidationScores.of(settings, ["none/none"])


def _settings(raw: dict[str, Any], **mixes: Any) -> Settings:
    raw["methods"] |= {"one": {"method": "paraclip"}, "other": {"method": "paraclip"}}
    return Settings.model_validate(raw | {"mixes": mixes})


def test_shares_are_of_differences_to_the_base_and_other_towers_refused() -> None:
    base, one, other = ({"w": torch.tensor([value, 1.0])} for value in (1.0, 3.0, -1.0))
    assert mixed(base, {"one": one, "other": other}, (0.5, 0.25))["w"].tolist() == [1 + 0.5 * 2 - 0.25 * 2, 1]
    assert mixed(base, {"one": one, "other": other}, (0.0, 1.0))["w"].tolist() == [-1, 1]
    assert base["w"].tolist() == [1, 1]
    base = {"w": torch.zeros(2), "v": torch.zeros(2)}
    with pytest.raises(InputError, match=r"'odd' cannot be mixed with the base.*'v' is not the same"):
        mixed(base, {"odd": {"w": torch.zeros(2), "v": torch.zeros(3)}}, (1.0,))
    with pytest.raises(InputError, match="'x' is not the same"):
        mixed(base, {"odd": base | {"x": torch.zeros(1)}}, (1.0,))


@pytest.fixture
def trained(
    raw_params: dict[str, Any], tiny_encoder: Encoder, tmp_path: Path, track_in: Callable[[Path], None]
) -> Callable[..., Sidecar]:
    """Trains the base and both members, the second with these facts, and gives the sidecar of their mix."""
    track_in(tmp_path)
    start = weights_of(tiny_encoder)["text_projection"].clone()

    def mix(**facts: Any) -> Sidecar:
        for name, moved in (("base", 0.0), ("one", 1.0), ("other", -2.0)):
            known = {"name": name, "git_commit": f"commit of {name}", "data_hashes": {"table of both": "t", name: "n"}}
            changes = known | (facts if name == "other" else {})
            tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update=changes)
            _save_moved(tiny_encoder, Path("models") / name, start + moved)
        run(_settings(raw_params, both={"a": "one", "b": "other", "weights": [0.5, 0.5]}), "both")
        found = Encoder.load(Path("models/both"))
        torch.testing.assert_close(weights_of(found)["text_projection"], start - 0.5)
        return found.sidecar

    return mix


def test_a_mix_is_an_encoder_with_a_run(trained: Callable[..., Sidecar], raw_params: dict[str, Any]) -> None:
    sidecar = trained()
    assert (sidecar.name, sidecar.method, sidecar.git_commit) == ("both", "mix", git_commit())
    weights = {f"models/{name}/encoder.safetensors" for name in ("base", "one", "other")}
    assert sidecar.data_hashes.keys() == weights | {"table of both", "one", "other"}
    run_id = json.loads(Path("models/both/run.json").read_text("utf-8"))["run_id"]
    assert make_client().get_run(run_id).data.params["a"] == "one"
    with pytest.raises(InputError, match=r"no block mixes\.none"):
        run(Settings.model_validate(raw_params), "none")


def test_a_mix_is_as_clean_as_its_members(trained: Callable[..., Sidecar], monkeypatch: pytest.MonkeyPatch) -> None:
    commits = {("c0", "c1"): "c0", ("c0", "c1-dirty"): "c0-dirty", ("c0-dirty", "c1"): "c0-dirty"}
    for (own, other), commit in (commits | {("c0", ""): "", ("", "c1"): ""}).items():
        monkeypatch.setattr("components.training.mixing.mix.git_commit", lambda own=own: own)
        assert trained(git_commit=other).git_commit == commit, (own, other)
    for facts, message in [
        ({"data_hashes": {"table of both": "older"}}, "'other' was trained on another table of both: run `dvc repro`"),
        ({"from_base": False}, "'other' cannot be mixed with the base: a tower of it was not trained from"),
    ]:
        with pytest.raises(InputError, match=message):
            trained(**facts)


def test_wrong_mixes_are_refused_and_mixes_of_mixes_are_encoders(raw_params: dict[str, Any]) -> None:
    messages = {
        ("both", "onne"): "mixes.both: 'onne' is unknown: did you mean",
        ("both", "both"): "'both' is unknown",
        ("one", "other"): "mixes.one would replace another encoder",
        ("base", "other"): "mixes.base would replace",
    }
    for (name, second), message in messages.items():
        with pytest.raises(InputError, match=message):
            check_names(_settings(raw_params, **{name: {"a": "one", "b": second, "weights": [1, 1]}}))
    shares = {"b": "other", "weights": [0.5, 0.5]}
    raw_params["compare_encoders"] = ["base", "more"]
    check_names(_settings(raw_params, both={"a": "one"} | shares, more={"a": "both"} | shares))
