"""Mixes: the base plus weighted differences of two encoders."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from components.training.mixing.mix import mixed, run, weights_of


def _settings(raw: dict[str, Any], **mixes: Any) -> Settings:
    raw["methods"] |= {"one": {"method": "paraclip"}, "other": {"method": "paraclip"}}
    return Settings.model_validate(raw | {"mixes": mixes})


def test_shares_are_of_differences_to_the_base() -> None:
    base, one, other = ({"w": torch.tensor([value, 1.0])} for value in (1.0, 3.0, -1.0))
    assert mixed(base, {"one": one, "other": other}, (0.5, 0.25))["w"].tolist() == [1 + 0.5 * 2 - 0.25 * 2, 1]
    assert mixed(base, {"one": one, "other": other}, (0.0, 1.0))["w"].tolist() == [-1, 1]
    assert base["w"].tolist() == [1, 1]


def test_other_towers_are_refused() -> None:
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
    start = {name: weights.clone() for name, weights in weights_of(tiny_encoder).items()}

    def mix(**facts: Any) -> Sidecar:
        for name, moved in (("base", 0.0), ("one", 1.0), ("other", -2.0)):
            tiny_encoder.model.load_state_dict(start | {"text_projection": start["text_projection"] + moved})
            known = {"name": name, "git_commit": f"commit of {name}", "data_hashes": {"table of both": "t", name: "n"}}
            changes = known | (facts if name == "other" else {})
            tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update=changes)
            tiny_encoder.save(Path("models") / name)
        run(_settings(raw_params, both={"a": "one", "b": "other", "weights": [0.5, 0.5]}), "both")
        found = Encoder.load(Path("models/both"))
        torch.testing.assert_close(weights_of(found)["text_projection"], start["text_projection"] - 0.5)
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


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"data_hashes": {"table of both": "older"}}, "'other' was trained on another table of both: run `dvc repro`"),
        ({"from_base": False}, "'other' cannot be mixed with the base: a tower of it was not trained from"),
    ],
    ids=["other data", "a new tower"],
)
def test_members_that_do_not_fit_are_refused(
    trained: Callable[..., Sidecar], facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        trained(**facts)


def test_wrong_mixes_are_refused_before_a_run(raw_params: dict[str, Any]) -> None:
    messages = {
        ("both", "onne"): "mixes.both: 'onne' is unknown: did you mean",
        ("both", "both"): "'both' is unknown",
        ("one", "other"): "mixes.one would replace another encoder",
        ("base", "other"): "mixes.base would replace",
    }
    for (name, second), message in messages.items():
        with pytest.raises(InputError, match=message):
            check_names(_settings(raw_params, **{name: {"a": "one", "b": second, "weights": [1, 1]}}))


def test_mixes_may_be_of_mixes_and_are_encoders(raw_params: dict[str, Any]) -> None:
    shares = {"b": "other", "weights": [0.5, 0.5]}
    raw_params["compare_encoders"] = ["base", "more"]
    check_names(_settings(raw_params, both={"a": "one"} | shares, more={"a": "both"} | shares))
