"""The way from a candidate to the champion's alias, against a real MLflow store."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.errors import InputError
from components.core.files import write_json
from components.encoders.adapter.sidecar import read_sidecar
from components.registry import champion, model
from components.registry import decision as records
from components.registry.decision import LATEST, RECORDS
from components.registry.model import CHAMPION, PREVIOUS, SHA_TAG, find_alias
from components.registry.promotion import promote
from components.registry.rollback import rollback
from components.tracking import make_client, tracking_uri, training_run
from tests.support.registry_project import EXAMPLES, SUMMARY_FILE

MODEL = "text-encoder"
PRIMARY = "paraphrased_retrieval/ao_at_10"


def _versions() -> dict[str, str]:
    client = make_client()
    aliases = {alias: find_alias(client, MODEL, alias) for alias in (CHAMPION, PREVIOUS)}
    return {alias: found.version for alias, found in aliases.items() if found is not None}


def test_first_champion(project: Any) -> None:
    encoder = project.add("paraclip", 2, 0.5)
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


def test_nothing_registered_is_pickled(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    files = [path for path in Path("mlruns/artifacts").rglob("*") if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in files)
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".py", ".yaml", ".txt", ".md", ".lock", ""}
    # Every pickle of protocol 2 and later begins with this byte.
    assert not [path for path in files if path.read_bytes()[:1] == b"\x80" and path.suffix != ".safetensors"]


def test_refused_candidate_is_recorded_but_not_registered(project: Any) -> None:
    project.add("paraclip", 2, 0.41)
    decision = promote(project.settings)
    assert decision.outcome == "refused"
    assert _versions() == {}
    assert records.latest() == decision
    assert make_client().get_run(decision.run_id).data.tags["promotion"] == "refused"


def test_same_weights_again_change_nothing(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    first = promote(project.settings)
    again = promote(project.settings)
    assert (again.outcome, again.version) == ("already champion", first.version)
    assert len(records.history()) == 1
    assert len(make_client().search_model_versions(f"name = '{MODEL}'")) == 1


@pytest.mark.parametrize("moved", ["deleted", "to another"])
def test_an_alias_that_a_person_moved_is_judged_again(project: Any, moved: str) -> None:
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    project.add("paraclip", 3, 0.6)
    promote(project.settings)
    if moved == "deleted":
        make_client().delete_registered_model_alias(MODEL, CHAMPION)
    else:
        make_client().set_registered_model_alias(MODEL, CHAMPION, "1")
    assert promote(project.settings).outcome == "promoted"
    assert _versions()[CHAMPION] == 2
    assert [found.outcome for found in records.history()] == ["promoted"] * 3


def test_dry_run_writes_nothing(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    assert promote(project.settings, dry_run=True).outcome == "promoted"
    assert _versions() == {}
    assert not RECORDS.exists()


def test_a_promotion_that_was_killed_after_the_alias_moved_is_finished(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.add("paraclip", 2, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(champion, "announce", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            promote(project.settings)
    sent: list[str] = []
    monkeypatch.setattr(champion, "announce", lambda decision, _settings: sent.append(decision.version))
    done = promote(project.settings)
    assert (done.outcome, sent) == ("promoted", ["1"])
    assert records.history() == [done]
    assert (promote(project.settings).outcome, sent) == ("already champion", ["1"])


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
    assert "version 1 champion meanwhile" in decision.rules[-1].reason
    assert _versions() == {CHAMPION: 1, PREVIOUS: 1}


def test_candidate_must_beat_the_champion_not_the_base(project: Any) -> None:
    project.add("paraclip", 2, 0.6)
    promote(project.settings)
    project.add("paraclip", 3, 0.5)
    decision = promote(project.settings)
    assert (decision.outcome, decision.against) == ("refused", "champion version 1")


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


@pytest.mark.parametrize(
    ("fault", "rule", "words"),
    [
        ("commit", "provenance", "no git commit"),
        ("hashes", "provenance", "no data hashes"),
        ("weights", "provenance", "not what was evaluated"),
        ("run file", "provenance", "names no training run"),
        ("run", "provenance", "is not in MLflow"),
        ("killed run", "provenance", "KILLED"),
        ("validation", "validation", "table 'paraphrases' failed"),
        ("summary", "validation", "missing or damaged"),
        ("examples", "validation", "was not trained on"),
        ("metrics", "provenance", "metrics/paraclip.json is not what dvc.lock says"),
        ("metrics of the base", "provenance", "metrics/base.json is not what dvc.lock says"),
        ("base", "provenance", "models/base/encoder.safetensors is not what was evaluated"),
        ("run of another", "provenance", "did not make the encoder in models/paraclip"),
        ("sidecar", "provenance", "did not make the encoder in models/paraclip"),
    ],
)
def test_incomplete_evidence_refuses(project: Any, fault: str, rule: str, words: str) -> None:
    project.add("paraclip", 2, 0.5)
    folder = Path("models/paraclip")
    sidecar = json.loads((folder / "encoder.json").read_text())
    run = json.loads((folder / "run.json").read_text())
    results = {name: Path(f"reports/metrics/{name}.json") for name in ("base", "paraclip")}
    breakers = {
        "commit": lambda: write_json(folder / "encoder.json", sidecar | {"git_commit": ""}),
        "hashes": lambda: write_json(folder / "encoder.json", sidecar | {"data_hashes": {}}),
        "weights": lambda: (folder / "encoder.safetensors").write_bytes(b"other"),
        "run file": (folder / "run.json").unlink,
        "run": lambda: write_json(folder / "run.json", run | {"run_id": "0" * 32}),
        "killed run": lambda: make_client().set_terminated(run["run_id"], "KILLED"),
        "validation": lambda: write_json(SUMMARY_FILE, {"passed": False}),
        "summary": lambda: SUMMARY_FILE.write_text("{"),
        "examples": lambda: EXAMPLES.write_bytes(b"others"),
        "metrics": lambda: results["paraclip"].write_text(results["paraclip"].read_text().replace("0.5", "0.9")),
        "metrics of the base": lambda: results["base"].write_text(results["base"].read_text().replace("0.4", "0.3")),
        "base": lambda: shutil.copy(folder / "encoder.safetensors", "models/base"),
        "run of another": lambda: shutil.copy("models/base/run.json", folder),
        "sidecar": lambda: write_json(folder / "encoder.json", sidecar | {"settings": {"lr": 1.0}}),
    }
    breakers[fault]()
    decision = promote(project.settings)
    assert decision.outcome == "refused"
    assert {found.name for found in decision.rules if not found.passed} == {rule}
    assert words in next(found.reason for found in decision.rules if found.name == rule)
    assert _versions() == {}


def test_best_of_several_methods_is_proposed(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    project.add("other", 3, 0.7)
    settings = project.settings.model_copy(update={"encoders": ("base", "paraclip", "other")})
    assert promote(settings).encoder == "other"


def test_the_best_that_passes_wins_though_a_collapsed_one_leads(project: Any) -> None:
    project.add("collapsed", 2, 0.9, recall=0.1)
    project.add("good", 3, 0.6)
    project.add("fair", 4, 0.5)
    settings = project.settings.model_copy(update={"encoders": ("base", "fair", "collapsed", "good")})
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


def test_an_encoder_that_is_trained_again_keeps_no_other_from_being_judged(project: Any) -> None:
    project.add("one", 2, 0.6)
    project.add("two", 3, 0.5)
    shutil.rmtree("models/one")
    decision = promote(project.settings.model_copy(update={"encoders": ("base", "one", "two")}), dry_run=True)
    assert (decision.encoder, decision.outcome, decision.passed_over[0].name) == ("two", "promoted", "one")
    assert "models/one holds no encoder" in decision.passed_over[0].reason


def test_an_encoder_without_results_keeps_no_other_from_being_judged(project: Any) -> None:
    """DVC removes results while stage `evaluate` scores an encoder again."""
    project.add("one", 2, 0.6)
    project.add("two", 3, 0.5)
    Path("reports/metrics/one.json").unlink()
    decision = promote(project.settings.model_copy(update={"encoders": ("base", "one", "two")}))
    assert (decision.encoder, decision.outcome) == ("two", "promoted")
    assert [(over.name, over.reason) for over in decision.passed_over] == [
        ("one", "it has no results: run `dvc repro evaluate@one`")
    ]


def test_where_none_passes_the_best_is_refused_and_the_others_are_told(project: Any) -> None:
    project.add("one", 2, 0.41)
    project.add("two", 3, 0.9, recall=0.1)
    settings = project.settings.model_copy(update={"encoders": ("base", "one", "two")})
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("two", "refused")
    assert [over.name for over in decision.passed_over] == ["one"]
    assert promote(settings) == decision


def test_unscored_method_is_named(project: Any) -> None:
    with pytest.raises(InputError, match=r"paraclip\.json is missing"):
        promote(project.settings)


def test_no_previous_champion(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    with pytest.raises(InputError, match="no previous champion"):
        rollback(project.settings)


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
