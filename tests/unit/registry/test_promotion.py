"""The way from a candidate to the champion's alias, against a real MLflow store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.core.tracking import make_client, training_run
from components.encoders.adapter.sidecar import read_sidecar
from components.registry import decision as records
from components.registry import model
from components.registry.champion import rollback
from components.registry.decision import LATEST, RECORDS, Decision
from components.registry.model import CHAMPION, PREVIOUS, SHA_TAG, find_alias
from components.registry.promotion import promote
from tests.support.registry_project import EXAMPLES, SUMMARY_FILE

MODEL = "text-encoder"
PRIMARY = "paraphrased_retrieval/ao_at_10"


def _versions() -> dict[str, str]:
    client = make_client()
    aliases = {alias: find_alias(client, MODEL, alias) for alias in (CHAMPION, PREVIOUS)}
    return {alias: found.version for alias, found in aliases.items() if found is not None}


def _failed(decision: Decision) -> list[str]:
    return [rule.name for rule in decision.rules if not rule.passed]


def _scored(project: Any, *encoders: str) -> Settings:
    """The settings of a project that chooses among these encoders."""
    changed: Settings = project.settings.model_copy(update={"compare_encoders": ("base", *encoders)})
    return changed


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
    assert _failed(promote(project.settings)) == ["history"]
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


def test_a_champion_that_changes_during_the_registration_is_kept(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert _failed(decision) == ["alone"]
    assert "has just made version 1 of text-encoder champion" in decision.rules[-1].reason
    assert _versions() == {CHAMPION: 1, PREVIOUS: 1}


@pytest.mark.parametrize("data", ["old", "new"])
def test_new_data_or_no_values_rescore_the_champion(project: Any, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    champion = project.add("paraclip", 2, 0.5, data=data)
    project.add("base", 1, 0.4, data=data)
    promote(project.settings)
    if data == "new":
        next(Path("mlruns").rglob("values.safetensors")).unlink()
    project.add("paraclip", 3, 0.9, data="new")
    scored: list[str] = []

    def evaluate(_settings: Any, name: str, folders: Any) -> Any:
        assert training_run(folders.models / name) == "", "its metrics would be logged into the champion's run"
        sha256 = read_sidecar(folders.models / name).weights_sha256
        scored.append(sha256)
        return project.score(name, sha256, 0.85, data="new", folders=folders)

    monkeypatch.setattr("components.evaluation.scoring.evaluate.run", evaluate)
    decision = promote(project.settings)
    assert scored == [champion.sidecar.weights_sha256]
    assert decision.outcome == "promoted"
    assert "0.8500 -> 0.9000" in next(rule.reason for rule in decision.rules if rule.name == PRIMARY)


def test_incomplete_evidence_refuses(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    folder, other = Path("models/paraclip"), Path("data/quarantine/negations/summary.json")
    sidecar = json.loads((folder / "encoder.json").read_text())
    run = json.loads((folder / "run.json").read_text())
    required = {"require_valid_tables": ("negations",), "require_clean_git": True}
    policy = project.settings.promote.model_copy(update=required)
    settings = project.settings.model_copy(update={"promote": policy})
    write_json(other, {"passed": True, "accepted": 1})

    def describe(**changes: Any) -> Callable[[], object]:
        return lambda: write_json(folder / "encoder.json", sidecar | changes)

    def rescore(name: str, old: str, new: str) -> Callable[[], object]:
        path = Path(f"reports/metrics/{name}.json")
        return lambda: path.write_text(path.read_text().replace(old, new))

    provenance: list[tuple[Callable[[], object], str]] = [
        (describe(git_commit=""), "no git commit"),
        (describe(data_hashes={}), "no data hashes"),
        (describe(git_commit="c0ffee-dirty"), "was trained with uncommitted changes"),
        (describe(settings={"lr": 1.0}), "did not make the encoder in models/paraclip"),
        (lambda: (folder / "encoder.safetensors").write_bytes(b"other"), "not the file that was evaluated"),
        ((folder / "run.json").unlink, "names no training run"),
        (lambda: write_json(folder / "run.json", run | {"run_id": "0" * 32}), "is not in MLflow"),
        (lambda: shutil.copy("models/base/run.json", folder), "did not make the encoder"),
        (rescore("paraclip", "0.5", "0.9"), "metrics/paraclip.json differs from the results of stage evaluate"),
        (rescore("base", "0.4", "0.3"), "metrics/base.json differs from the results of stage evaluate in dvc.lock"),
        (lambda: shutil.copy(folder / "encoder.safetensors", "models/base"), "models/base/encoder.safetensors is not"),
        (lambda: make_client().set_terminated(run["run_id"], "KILLED"), "KILLED"),
    ]
    validation: list[tuple[Callable[[], object], str]] = [
        (lambda: write_json(SUMMARY_FILE, {"passed": False}), "table 'paraphrases' failed"),
        (lambda: SUMMARY_FILE.write_text("{"), "missing or damaged"),
        (lambda: EXAMPLES.write_bytes(b"others"), "was not trained on the current"),
        (other.unlink, "summary.json is missing or damaged: run `dvc repro validate@negations`"),
        (lambda: write_json(other, {"passed": False, "accepted": 5}), "table 'negations' failed"),
        (lambda: write_json(other, {"passed": True, "accepted": 0}), "has no accepted rows"),
    ]
    faults = [*(("validation", *fault) for fault in validation), *(("provenance", *fault) for fault in provenance)]
    assert promote(settings, dry_run=True).outcome == "promoted"
    shutil.copytree(".", "../sound", ignore=shutil.ignore_patterns("mlruns"))
    for rule, plant, words in faults:
        plant()
        decision = promote(settings, dry_run=True)
        failed = [verdict for verdict in decision.rules if not verdict.passed]
        assert [verdict.name for verdict in failed] == [rule], words
        assert words in failed[0].reason
        shutil.copytree("../sound", ".", dirs_exist_ok=True)
    assert promote(settings).outcome == "refused"
    assert _versions() == {}


def test_the_best_that_passes_wins_and_without_one_the_best_is_refused_and_recorded(project: Any) -> None:
    """DVC deletes encoders while they are trained again, and results while they are scored again."""
    for seed, name in enumerate(("one", "two", "three")):
        project.add(name, seed + 2, 0.7 - seed / 10)
    shutil.rmtree("models/one")
    Path("reports/metrics/two.json").unlink()
    decision = promote(_scored(project, "one", "two", "three"), dry_run=True)
    assert (decision.encoder, decision.outcome) == ("three", "promoted")
    trained, scored = decision.passed_over
    assert (trained.name, scored.name) == ("one", "two")
    assert "models/one holds no encoder" in trained.reason
    assert scored.reason == "reports/metrics/two.json is missing: run `dvc --wait-for-lock repro evaluate@two`"

    project.add("one", 2, 0.401)
    project.add("collapsed", 3, 0.9, recall=0.1)
    settings = _scored(project, "one", "collapsed")
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("collapsed", "refused")
    assert [over.name for over in decision.passed_over] == ["one"]
    assert _versions() == {}
    assert records.latest() == decision
    assert make_client().get_run(decision.run_id).data.tags["promotion"] == "refused"
    assert promote(settings) == decision
    assert len(records.history()) == 1

    project.add("good", 4, 0.6)
    project.add("fair", 5, 0.5)
    settings = _scored(project, "fair", "collapsed", "good")
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
    assert len(records.history()) == 2


def test_looks_at_a_test_set_are_counted_with_the_model_and_spent(project: Any) -> None:
    def look(seed: int, data: str = "d", dry_run: bool = False) -> tuple[int, str]:
        project.add("paraclip", seed, 0.408, data=data)
        decision = promote(project.settings, dry_run=dry_run)
        return decision.look, decision.outcome

    for seed in range(2, 5):
        project.add("paraclip", seed, 0.4)
        looks = [promote(project.settings, dry_run=dry).look for dry in (True, False, False)]
        assert looks == [seed - 1] * 3, "the same candidate against the same encoder"
    # Eight queries of 1,000 are clear at the first look and not at the fourth.
    assert look(5) == (4, "refused")
    assert "looks at it: `4`" in (RECORDS / f"{LATEST}.md").read_text()
    project.add("base", 1, 0.4, data="new")
    assert look(5, "new", dry_run=True) == (1, "promoted")
    assert look(5, "new") == (1, "promoted")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda _: Path("reports/per_query/paraclip.safetensors").unlink(), "paraclip.safetensors"),
        (lambda project: _scored(project, "paraclip", "paraclip"), "names 'paraclip' 2 times"),
    ],
)
def test_what_cannot_be_judged_is_one_line(project: Any, spoil: Callable[[Any], Settings | None], message: str) -> None:
    project.add("paraclip", 2, 0.5)
    with pytest.raises(InputError, match=message) as caught:
        promote(spoil(project) or project.settings)
    assert "\n" not in str(caught.value)
