"""The way from a candidate to the champion's alias, against a real MLflow store."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.encoders.adapter.sidecar import read_sidecar
from components.registry import decision as records
from components.registry import model
from components.registry.champion import BusyError, promotion_lock, rollback
from components.registry.decision import LATEST, RECORDS
from components.registry.model import CHAMPION, PREVIOUS, SHA_TAG, find_alias
from components.registry.promotion import promote
from components.tracking import make_client, tracking_uri, training_run
from tests.support.registry_project import EXAMPLES, SUMMARY_FILE

MODEL = "text-encoder"
PRIMARY = "paraphrased_retrieval/ao_at_10"
PROVENANCE, VALIDATION = "provenance", "validation"


def _versions() -> dict[str, str]:
    client = make_client()
    aliases = {alias: find_alias(client, MODEL, alias) for alias in (CHAMPION, PREVIOUS)}
    return {alias: found.version for alias, found in aliases.items() if found is not None}


def test_first_champion(project: Any) -> None:
    with pytest.raises(InputError, match=r"paraclip\.json is missing"):
        promote(project.settings)
    encoder = project.add("paraclip", 2, 0.5)
    assert promote(project.settings, dry_run=True).outcome == "promoted"
    assert _versions() == {}
    assert not RECORDS.exists()
    decision = promote(project.settings)
    assert (decision.outcome, decision.against, decision.version) == ("promoted", "base", "1")
    client = make_client()
    champion = find_alias(client, MODEL, CHAMPION)
    assert champion is not None
    assert champion.tags[SHA_TAG] == encoder.sidecar.weights_sha256
    assert champion.run_id == decision.run_id == json.loads(Path("models/paraclip/run.json").read_text())["run_id"]
    assert "@champion" in client.get_registered_model(MODEL).description
    run = client.get_run(decision.run_id)
    assert run.data.tags["model_version"] == f"{MODEL}/1"
    assert [file.path for file in client.list_artifacts(decision.run_id, "promotion")]
    assert records.read(RECORDS / f"{LATEST}.json") == decision
    assert "promoted" in (RECORDS / f"{LATEST}.md").read_text()
    files = [path for path in Path("mlruns/artifacts").rglob("*") if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in files)
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".py", ".yaml", ".txt", ".md", ".lock", ""}
    # Every pickle of protocol 2 and later begins with this byte.
    assert not [path for path in files if path.read_bytes()[:1] == b"\x80" and path.suffix != ".safetensors"]
    again = promote(project.settings)
    assert (again.outcome, again.version) == ("already champion", decision.version)
    assert len(records.history()) == len(client.search_model_versions(f"name = '{MODEL}'")) == 1
    with pytest.raises(InputError, match="no previous champion"):
        rollback(project.settings)


def test_refused_candidate_is_recorded_but_not_registered(project: Any) -> None:
    project.add("paraclip", 2, 0.41)
    decision = promote(project.settings)
    assert decision.outcome == "refused"
    assert _versions() == {}
    assert records.latest() == decision
    assert make_client().get_run(decision.run_id).data.tags["promotion"] == "refused"
    assert promote(project.settings) == decision
    assert len(records.history()) == 1


def test_better_candidate_follows_and_rollback_returns(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    project.add("paraclip", 3, 0.6)
    second = promote(project.settings)
    assert (second.outcome, second.against) == ("promoted", "champion version 1")
    assert _versions() == {CHAMPION: 2, PREVIOUS: 1}
    back = rollback(project.settings)
    assert (back.outcome, back.version) == ("rolled back", "1")
    assert _versions() == {CHAMPION: 1, PREVIOUS: 2}
    refused = promote(project.settings)
    assert [rule.name for rule in refused.rules if not rule.passed] == ["history"]
    rollback(project.settings)
    assert _versions() == {CHAMPION: 2, PREVIOUS: 1}
    assert promote(project.settings).outcome == "already champion"
    # An alias that a person moved or deleted in MLflow is judged again.
    for move in (
        lambda: make_client().set_registered_model_alias(MODEL, CHAMPION, "1"),
        lambda: make_client().delete_registered_model_alias(MODEL, CHAMPION),
    ):
        move()
        assert promote(project.settings).outcome == "promoted"
        assert _versions()[CHAMPION] == 2
    project.add("paraclip", 4, 0.55)
    worse = promote(project.settings)
    assert (worse.outcome, worse.against) == ("refused", "champion version 2")
    project.add("paraclip", 5, 0.7)
    with promotion_lock(MODEL):
        kept_out = promote(project.settings)
        with pytest.raises(BusyError, match="another process is promoting or rolling back text-encoder"):
            rollback(project.settings)
    assert [rule.name for rule in kept_out.rules if not rule.passed] == ["alone"]
    assert records.latest() == worse
    assert promote(project.settings).outcome == "promoted"


def test_a_champion_that_changes_while_the_candidate_is_registered_is_kept(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, score in ((2, 0.5), (3, 0.6)):
        project.add("paraclip", seed, score)
        promote(project.settings)
    project.add("paraclip", 4, 0.7)
    register = model.register

    def register_while_another_host_rolls_back(*arguments: Any, **named: Any) -> str:
        version = register(*arguments, **named)
        make_client().set_registered_model_alias(MODEL, CHAMPION, "1")
        return version

    monkeypatch.setattr(model, "register", register_while_another_host_rolls_back)
    decision = promote(project.settings)
    assert (decision.outcome, decision.version) == ("refused", "")
    assert [rule.name for rule in decision.rules if not rule.passed] == ["alone"]
    assert "has just made version 1 of text-encoder champion" in decision.rules[-1].reason
    assert _versions() == {CHAMPION: 1, PREVIOUS: 1}


def test_champion_is_scored_again_on_new_evaluation_data(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    champion = project.add("paraclip", 2, 0.5, data="old")
    project.add("base", 1, 0.4, data="old")
    promote(project.settings)
    project.add("paraclip", 3, 0.9, data="new")
    asked: list[str] = []

    def evaluate(_settings: Any, name: str, folders: Any) -> Any:
        assert training_run(folders.models / name) == "", "its metrics would be logged into the champion's run"
        sha256 = read_sidecar(folders.models / name).weights_sha256
        asked.append(sha256)
        return project.score(name, sha256, 0.85, data="new")

    monkeypatch.setattr("components.evaluation.evaluate.run", evaluate)
    decision = promote(project.settings)
    assert asked == [champion.sidecar.weights_sha256]
    assert decision.outcome == "promoted"
    assert "0.8500 -> 0.9000" in next(rule.reason for rule in decision.rules if rule.name == PRIMARY)


def test_incomplete_evidence_refuses(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    folder, other = Path("models/paraclip"), Path("data/quarantine/negations/summary.json")
    sidecar = json.loads((folder / "encoder.json").read_text())
    run = json.loads((folder / "run.json").read_text())
    results = {name: Path(f"reports/metrics/{name}.json") for name in ("base", "paraclip")}
    settings = project.settings.model_copy(
        update={
            "promote": project.settings.promote.model_copy(
                update={"require_valid_tables": ("negations",), "require_clean_git": True}
            )
        }
    )
    write_json(other, {"passed": True, "accepted": 1})
    faults: list[tuple[Callable[[], object], str, str]] = [
        (lambda: write_json(folder / "encoder.json", sidecar | {"git_commit": ""}), PROVENANCE, "no git commit"),
        (lambda: write_json(folder / "encoder.json", sidecar | {"data_hashes": {}}), PROVENANCE, "no data hashes"),
        (lambda: write_json(folder / "encoder.json", sidecar | {"git_commit": "c0ffee-dirty"}), PROVENANCE,
         "was trained with uncommitted changes"),
        (lambda: write_json(folder / "encoder.json", sidecar | {"settings": {"lr": 1.0}}), PROVENANCE,
         "did not make the encoder in models/paraclip"),
        (lambda: (folder / "encoder.safetensors").write_bytes(b"other"), PROVENANCE, "not the file that was evaluated"),
        ((folder / "run.json").unlink, PROVENANCE, "names no training run"),
        (lambda: write_json(folder / "run.json", run | {"run_id": "0" * 32}), PROVENANCE, "is not in MLflow"),
        (lambda: shutil.copy("models/base/run.json", folder), PROVENANCE, "did not make the encoder"),
        (lambda: results["paraclip"].write_text(results["paraclip"].read_text().replace("0.5", "0.9")), PROVENANCE,
         "metrics/paraclip.json differs from the results of stage evaluate in dvc.lock"),
        (lambda: results["base"].write_text(results["base"].read_text().replace("0.4", "0.3")), PROVENANCE,
         "metrics/base.json differs from the results of stage evaluate in dvc.lock"),
        (lambda: shutil.copy(folder / "encoder.safetensors", "models/base"), PROVENANCE,
         "models/base/encoder.safetensors is not the file that was evaluated"),
        (lambda: write_json(SUMMARY_FILE, {"passed": False}), VALIDATION, "table 'paraphrases' failed"),
        (lambda: SUMMARY_FILE.write_text("{"), VALIDATION, "missing or damaged"),
        (lambda: EXAMPLES.write_bytes(b"others"), VALIDATION, "was not trained on the current"),
        (other.unlink, VALIDATION, "summary.json is missing or damaged: run `dvc repro validate@negations`"),
        (lambda: write_json(other, {"passed": False, "accepted": 5}), VALIDATION, "table 'negations' failed"),
        (lambda: write_json(other, {"passed": True, "accepted": 0}), VALIDATION, "has no accepted rows"),
        (lambda: make_client().set_terminated(run["run_id"], "KILLED"), PROVENANCE, "KILLED"),
    ]  # fmt: skip
    assert promote(settings, dry_run=True).outcome == "promoted"
    shutil.copytree(".", "../sound", ignore=shutil.ignore_patterns("mlruns"))
    for plant, rule, words in faults:
        plant()
        decision = promote(settings, dry_run=True)
        failed = [verdict for verdict in decision.rules if not verdict.passed]
        assert [verdict.name for verdict in failed] == [rule], words
        assert words in failed[0].reason
        shutil.copytree("../sound", ".", dirs_exist_ok=True)
    assert promote(settings).outcome == "refused"
    assert _versions() == {}


def test_the_best_that_passes_wins_though_a_collapsed_one_leads(project: Any) -> None:
    project.add("collapsed", 2, 0.9, recall=0.1)
    project.add("good", 3, 0.6)
    project.add("fair", 4, 0.5)
    settings = project.settings.model_copy(update={"compare_encoders": ("base", "fair", "collapsed", "good")})
    assert promote(settings, dry_run=True).encoder == "good"
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("good", "promoted")
    [over] = decision.passed_over
    assert over.name == "collapsed"
    assert over.reason.startswith("guard retrieval/t2i_recall_at_5")
    assert "- **collapsed**: guard" in decision.markdown()
    [behind] = decision.behind
    assert (behind.name, behind.reason) == ("fair", "paraphrased_retrieval/ao_at_10 0.5000, good has 0.6000")
    assert "- **fair**: paraphrased_retrieval" in decision.markdown()
    again = promote(settings)
    assert (again.encoder, again.outcome) == ("good", "already champion")
    assert len(records.history()) == 1


def test_encoders_that_are_trained_or_scored_again_are_passed_over(project: Any) -> None:
    """DVC deletes encoders while they are trained again, and results while they are scored again."""
    for seed, name in enumerate(("one", "two", "three")):
        project.add(name, seed + 2, 0.7 - seed / 10)
    shutil.rmtree("models/one")
    Path("reports/metrics/two.json").unlink()
    settings = project.settings.model_copy(update={"compare_encoders": ("base", "one", "two", "three")})
    decision = promote(settings, dry_run=True)
    assert (decision.encoder, decision.outcome) == ("three", "promoted")
    trained, scored = decision.passed_over
    assert (trained.name, scored.name) == ("one", "two")
    assert "models/one holds no encoder" in trained.reason
    assert scored.reason == "it has no results: run `dvc repro evaluate@two`"


def test_if_none_passes_the_best_is_refused_and_the_record_lists_the_others(project: Any) -> None:
    project.add("one", 2, 0.41)
    project.add("two", 3, 0.9, recall=0.1)
    settings = project.settings.model_copy(update={"compare_encoders": ("base", "one", "two")})
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("two", "refused")
    assert [over.name for over in decision.passed_over] == ["one"]
    assert promote(settings) == decision


_LOAD = """
import sys, mlflow, numpy as np, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/text-encoder@champion")
texts = ["a dog", "two cats on a sofa"]
np.save(sys.argv[2], np.stack([model.predict(texts), model.predict(pd.DataFrame({"text": texts}))]))
"""


@pytest.mark.slow
def test_champion_in_a_fresh_process_elsewhere(project: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    encoder = project.add("paraclip", 2, 0.5)
    promote(project.settings)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    command = [sys.executable, "-c", _LOAD, tracking_uri(), "vectors.npy"]
    subprocess.run(command, cwd=elsewhere, check=True, capture_output=True)
    vectors = np.load(elsewhere / "vectors.npy")
    expected = encoder.embed_texts(["a dog", "two cats on a sofa"])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, np.stack([expected, expected]), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=2), 1, atol=1e-5)
