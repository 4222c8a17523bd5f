"""A version that lost its files, or has others, is noticed by every command that vouches for it, and restored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from components.cli.doctor import CHECKS
from components.cli.doctor.check import Installation
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tracking import make_client
from components.registry.champion import rollback
from components.registry.encoder_lookup import find_encoder
from components.registry.promotion import promote


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
def test_a_champion_without_its_files_is_restored_from_its_encoder(
    champion: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
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
    with pytest.raises(
        InputError, match=r"lost its files .* `cliptune promote` restores them .* if its weights are there"
    ):
        find_encoder("text-encoder@champion")
    with pytest.raises(
        InputError, match=r"no encoder in models has its weights: .*delete its alias 'champion' in MLflow"
    ):
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
    run = MlflowClient().search_runs(
        [make_client().get_experiment_by_name(champion.settings.dataset.name).experiment_id]
    )
    lost = next(one for one in run if one.data.tags["encoder"] == "better")
    shutil.rmtree(download_artifacts(lost.info.artifact_uri))
    decision = promote(champion.settings)
    (reason,) = (rule.reason for rule in decision.passed_over if rule.name == "better")
    assert "has lost its artifacts: restore MLflow's artifact store, or train again" in reason
