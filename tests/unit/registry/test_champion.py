"""A change of champion that is killed at any step is finished by running the command again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import make_client
from components.registry import decision as records
from components.registry.champion import finish_killed, make_champion, rollback
from components.registry.decision import Decision
from components.registry.model import CHALLENGER, CHAMPION, PREVIOUS, ROLLED_BACK, find_alias
from tests.support.registry_project import write_version_files

MODEL = "text-encoder"


class Killed(BaseException):
    """Ends a command where it is."""


@pytest.fixture
def saved(tmp_path: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Versions whose decision was recorded. Three versions are there, the second champion, the first before it."""
    track_in(tmp_path)
    client = make_client()
    client.create_registered_model(MODEL)
    for _ in range(3):
        client.create_model_version(MODEL, str(tmp_path), tags=write_version_files(tmp_path))
    _reset()
    found: list[str] = []
    real = records.save

    def save(decision: Decision) -> Path:
        found.append(decision.version)
        return real(decision)

    monkeypatch.setattr(records, "save", save)
    return found


def _aliases() -> dict[str, int]:
    found = {alias: find_alias(make_client(), MODEL, alias) for alias in (CHAMPION, PREVIOUS, CHALLENGER)}
    return {alias: int(version.version) for alias, version in found.items() if version is not None}


def _kill_after(calls: int, patch: pytest.MonkeyPatch) -> None:
    """Kill the process after so many calls that change the registry or the records."""
    left = [calls]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            found = real(*arguments, **named)
            left[0] -= 1
            if not left[0]:
                raise Killed
            return found

        return call

    for change in ("set_model_version_tag", "delete_model_version_tag"):
        patch.setattr(MlflowClient, change, counted(getattr(MlflowClient, change)))
    for change in ("set_registered_model_alias", "delete_registered_model_alias"):
        patch.setattr(MlflowClient, change, counted(getattr(MlflowClient, change)))
    patch.setattr(records, "save", counted(records.save))


def _reset() -> None:
    """Version 2 is champion, 1 was champion before, and 3 is challenger."""
    for alias, version in ((CHAMPION, "2"), (PREVIOUS, "1"), (CHALLENGER, "3")):
        make_client().set_registered_model_alias(MODEL, alias, version)


def test_a_killed_rollback_is_finished(saved: list[str], settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for calls in range(1, 7):
        _reset()
        with monkeypatch.context() as patch:
            _kill_after(calls, patch)
            with pytest.raises(Killed):
                rollback(settings)
        done = rollback(settings)
        assert _aliases() == {CHAMPION: 1, PREVIOUS: 2, CHALLENGER: 3}
        assert ROLLED_BACK in make_client().get_model_version(MODEL, "2").tags
        assert (done.outcome, done.version, saved[-1], records.latest()) == ("rolled back", "1", "1", done)
        rollback(settings)
        assert _aliases() == {CHAMPION: 2, PREVIOUS: 1, CHALLENGER: 3}


def test_a_killed_promotion_is_finished(saved: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_client()
    for calls in range(2, 7):
        _reset()
        decision = Decision(
            outcome="promoted", version="3", previous_version="2", model=MODEL, encoder="e", encoder_sha256="s",
            against="champion version 2", tracking_uri="u", time=records.now(),
        )  # fmt: skip
        with monkeypatch.context() as patch:
            _kill_after(calls, patch)
            with pytest.raises(Killed):
                make_champion(client, decision)
        assert finish_killed(client, MODEL) == decision
        assert _aliases() == {CHAMPION: 3, PREVIOUS: 2}
        assert (saved[-1], records.latest()) == ("3", decision)
        assert finish_killed(client, MODEL) is None


def test_of_two_rollbacks_at_once_the_second_changes_nothing(saved: list[str], settings: Settings) -> None:
    began = records.now()
    rollback(settings, began=began)
    with pytest.raises(InputError, match="has just made version 1 of text-encoder champion"):
        rollback(settings, began=began)
    assert (_aliases()[CHAMPION], saved) == (1, ["1"])
