"""A killed change of champion is finished; lost files are restored; dead runs and moved aliases are reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from components.cli.doctor import CHECKS
from components.cli.doctor.check import Installation
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.system.processes import new_worker
from components.core.tables.files import file_hash
from components.core.tracking import make_client
from components.registry import decision as records
from components.registry.champion import finish_killed, make_champion, rollback
from components.registry.decision import Decision
from components.registry.encoder_lookup import find_encoder
from components.registry.model import CHALLENGER, CHAMPION, PREVIOUS, ROLLED_BACK, find_alias
from components.registry.promotion import promote
from components.registry.sweep import OWNER, SWEPT, sweep_aliases, sweep_runs
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

    of_aliases = ("set_registered_model_alias", "delete_registered_model_alias")
    for change in ("set_model_version_tag", "delete_model_version_tag", *of_aliases):
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


def _files(version: str = "1") -> Path:
    return Path(download_artifacts(make_client().get_model_version("text-encoder", version).source))


def _break(how: str, folder: Path) -> None:
    if how == "gone":
        shutil.rmtree(folder)
    elif how == "no weights":
        (folder / "artifacts/encoder/encoder.safetensors").unlink()
    elif how == "other weights":
        shutil.copy("models/base/encoder.safetensors", folder / "artifacts/encoder")
    else:
        shutil.copy("reports/metrics/base.json", folder / "artifacts/metrics.json")


def _doctor(project: Any) -> str:
    try:
        return CHECKS["registry"](Installation({}, Path(), project.settings)).status
    except InputError as error:
        return str(error)


@pytest.fixture
def champion(project: Any) -> Any:
    settings = project.settings.model_copy(update={"compare_encoders": ("base", "good", "better")})
    project.settings = settings
    project.add("good", 2, 0.5)
    assert promote(settings).outcome == "promoted"
    return project


@pytest.mark.parametrize("how", ["gone", "no weights", "other weights", "other results"])
def test_a_champion_without_files_is_restored(champion: Any, how: str, caplog: pytest.LogCaptureFixture) -> None:
    before = file_hash(_files() / "artifacts/encoder/encoder.safetensors")
    _break(how, _files())
    assert "cliptune promote" in _doctor(champion)
    with pytest.raises(InputError, match="version 1 of text-encoder has"):
        promote(champion.settings, dry_run=True)
    assert promote(champion.settings).outcome == "already champion"
    assert "version 1 of text-encoder had lost files: restored from models/good" in caplog.text
    assert file_hash(_files() / "artifacts/encoder/encoder.safetensors") == before
    assert _doctor(champion) == "ok"
    find_encoder("text-encoder@champion")


def test_without_its_weights_the_advice_leads_to_a_champion_with_files(champion: Any) -> None:
    _break("gone", _files())
    Path("models/good").rename("elsewhere")
    advice = r"lost its files .* `cliptune promote` restores them .* if its weights are there"
    with pytest.raises(InputError, match=advice):
        find_encoder("text-encoder@champion")
    with pytest.raises(InputError, match=r"no encoder in models has its weights: .*delete its alias 'champion' in"):
        promote(champion.settings)
    Path("elsewhere").rename("models/good")
    make_client().delete_registered_model_alias("text-encoder", "champion")
    decision = promote(champion.settings)
    assert (decision.outcome, decision.version) == ("promoted", "2")
    find_encoder("text-encoder@champion")
    assert _doctor(champion) == "ok"


def test_a_better_candidate_is_judged_against_a_restored_champion_and_a_rollback_reads_its_files(champion: Any) -> None:
    _break("gone", _files())
    champion.add("better", 3, 0.6)
    decision = promote(champion.settings)
    assert (decision.outcome, decision.against, decision.version) == ("promoted", "champion version 1", "2")
    _break("gone", _files())
    with pytest.raises(InputError, match=r"version 1 of text-encoder has lost its files .*: restore file:///"):
        rollback(champion.settings)
    assert make_client().get_model_version_by_alias("text-encoder", "champion").version == 2


def test_lost_artifacts_of_a_run_are_not_a_run_of_another_encoder(champion: Any) -> None:
    champion.add("better", 3, 0.6)
    experiment = make_client().get_experiment_by_name(champion.settings.dataset.name).experiment_id
    lost = next(run for run in MlflowClient().search_runs([experiment]) if run.data.tags["encoder"] == "better")
    shutil.rmtree(download_artifacts(lost.info.artifact_uri))
    decision = promote(champion.settings)
    (reason,) = (rule.reason for rule in decision.passed_over if rule.name == "better")
    assert "has lost its artifacts: restore MLflow's artifact store, or train again" in reason


def test_runs_of_dead_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert (sweep_runs(False), sweep_aliases(MODEL)) == ([], [])
    assert not Path("mlruns").exists()
    client = make_client()
    experiment = client.create_experiment("world")
    alive = new_worker()
    dead = " ".join([alive.split(" ")[0], str(2**22 + 7), *alive.split(" ")[2:]])

    def start(owner: str) -> str:
        tags = {"stage": "train"} | ({OWNER: owner} if owner else {})
        return str(client.create_run(experiment, tags=tags, run_name="x").info.run_id)

    def statuses(*runs: str) -> list[str]:
        return [client.get_run(run).info.status for run in runs]

    killed, *kept = start(dead), start(alive), start(""), start("elsewhere 1 2.0 ab")
    dry = sweep_runs(True)
    assert statuses(killed) == ["RUNNING"]
    assert sweep_runs(False) == dry
    assert [(finding.subject, finding.done) for finding in dry] == [(f"x ({killed})", "ended as KILLED")]
    assert statuses(killed, *kept) == ["KILLED", *["RUNNING"] * 3]
    assert client.get_run(killed).data.tags[SWEPT] == f"its process is dead: {dead}"


def test_an_alias_that_was_moved_by_hand_is_reported(project: Any) -> None:
    assert sweep_aliases(MODEL) == []
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    project.add("paraclip", 3, 0.6)
    assert promote(project.settings).version == "2"
    assert sweep_aliases(MODEL) == []
    rollback(project.settings)
    assert sweep_aliases(MODEL) == []
    client = make_client()
    client.set_registered_model_alias(MODEL, CHAMPION, "2")
    (finding,) = sweep_aliases(MODEL)
    assert finding.subject == "text-encoder@champion is version 2"
    assert "version 1" in finding.reason
    client.delete_registered_model_alias(MODEL, CHAMPION)
    assert [finding.subject for finding in sweep_aliases(MODEL)] == ["text-encoder@champion is no version"]
