"""Stage `repeat_mix`: a mix of a seed's own encoders, and its results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.checking import check_names
from components.core.system.errors import InputError
from components.evaluation.results import Folders
from components.study import repeat_mix

_METHODS = {name: {"method": "paraclip"} for name in ("one", "other")}
_MIXES = {"both": {"a": "one", "b": "other", "weights": [0.5, 0.25]}}


def _settings(raw: dict[str, Any], **study: Any) -> Settings:
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

    monkeypatch.setattr("components.mixing.mix.run", mix)
    monkeypatch.setattr("components.evaluation.evaluate.run", evaluate)
    folders = Folders(models=tmp_path / "models", reports=tmp_path / "reports")
    repeat_mix.run(_settings(raw_params), 7, "both", folders)
    assert seen == {"mixed": (7, "both", folders.models), "scored": (7, "both", folders.reports, True)}
    assert not folders.models.exists()


def test_members_of_a_mix_of_the_study_must_be_in_the_study(raw_params: dict[str, Any]) -> None:
    check_names(_settings(raw_params, encoders=["one", "other"], mixes=["both"]))
    with pytest.raises(InputError, match=r"study\.encoders lacks a member of study\.mixes\.both: 'other'"):
        check_names(_settings(raw_params, encoders=["one"], mixes=["both"]))
    with pytest.raises(InputError, match=r"study\.mixes: 'bath'"):
        check_names(_settings(raw_params, encoders=["one", "other"], mixes=["bath"]))
