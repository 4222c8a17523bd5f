"""Mixes: the base plus shares of what two encoders learnt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from components.core.checking import check_names
from components.core.errors import InputError
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.mixing.mix import mixed, run, weights_of
from components.tracking import make_client


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


def test_a_mix_is_an_encoder_with_a_run(
    raw_params: dict[str, Any], tiny_encoder: Encoder, tmp_path: Path, track_in: Callable[[Path], None]
) -> None:
    track_in(tmp_path)
    start = {name: weights.clone() for name, weights in weights_of(tiny_encoder).items()}
    for name, moved in (("base", 0.0), ("one", 1.0), ("other", -2.0)):
        weights = start | {"text_projection": start["text_projection"] + moved}
        tiny_encoder.model.load_state_dict(weights)
        tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"name": name})
        tiny_encoder.save(tmp_path / "models" / name)
    settings = _settings(raw_params, both={"first": "one", "second": "other", "shares": [0.5, 0.5]})
    run(settings, "both", tmp_path / "models")
    found = Encoder.load(tmp_path / "models" / "both")
    torch.testing.assert_close(weights_of(found)["text_projection"], start["text_projection"] - 0.5)
    assert (found.sidecar.name, found.sidecar.method) == ("both", "mix")
    assert len(found.sidecar.data_hashes) == 3
    run_id = json.loads((tmp_path / "models" / "both" / "run.json").read_text("utf-8"))["run_id"]
    assert make_client().get_run(run_id).data.params["first"] == "one"
    with pytest.raises(InputError, match=r"no block mixes\.none"):
        run(settings, "none", tmp_path / "models")
    tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"from_base": False})
    tiny_encoder.save(tmp_path / "models" / "other")
    with pytest.raises(InputError, match="'other' cannot be mixed with the base: a tower of it was not trained from"):
        run(settings, "both", tmp_path / "models")


@pytest.mark.parametrize(
    ("mixes", "told"),
    [
        ({"both": {"first": "one", "second": "onne", "shares": [1, 1]}}, "mixes.both: 'onne' is unknown: did you mean"),
        ({"both": {"first": "one", "second": "both", "shares": [1, 1]}}, "'both' is unknown"),
        ({"one": {"first": "one", "second": "other", "shares": [1, 1]}}, "mixes.one would replace another encoder"),
        ({"base": {"first": "one", "second": "other", "shares": [1, 1]}}, "mixes.base would replace"),
    ],
)
def test_wrong_mixes_are_told_before_anything_runs(
    raw_params: dict[str, Any], mixes: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        check_names(_settings(raw_params, **mixes))


def test_mixes_may_be_of_mixes_and_are_encoders(raw_params: dict[str, Any]) -> None:
    shares = {"second": "other", "shares": [0.5, 0.5]}
    raw_params["encoders"] = ["base", "more"]
    check_names(_settings(raw_params, both={"first": "one"} | shares, more={"first": "both"} | shares))
