"""Names of earlier versions: every message has the new one, and `cliptune upgrade` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import app
from components.core.settings import Settings, load_settings
from components.core.system import renamed
from components.core.system.discovery import find
from components.core.system.errors import InputError
from components.training.methods.registry import find_entry

REPO = Path(__file__).parents[4]
OLD = """\
# My shop. All of it.
over: methods
world: {name: embedded}
promote:
  # MLflow has them now.
  webhook: https://host/hook
  primary: retrieval/t2i_recall_at_5  # what users feel
train: {device: cpu, keep: 3}
embed:
  device: cpu

methods:
  mine: {method: coco_ft, "reads": data/validated/mine}   # two words
"""
NEW = """\
# My shop. All of it.
device: cpu
over: methods
dataset: {name: synthetic}
promote:
  # MLflow has them now.
  metric: retrieval/t2i_recall_at_5  # what users feel
train: {keep_checkpoints: 3}
embed:
  {}

methods:
  mine: {method: caption_ft, train_data: data/validated/mine}   # two words
"""


def _with(key: str, value: Any) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((REPO / "params.yaml").read_text("utf-8"))
    *blocks, last = key.replace("*", "paraclip").split(".")
    block = raw
    for name in blocks:
        block = block.setdefault(name, {})
    block[last] = value
    return raw


@pytest.mark.parametrize("old", [*renamed.KEYS, *renamed.REMOVED])
def test_every_old_key_is_refused_with_the_new_one(old: str, tmp_path: Path) -> None:
    raw = _with(old.replace("tasks.*", "tasks.paraphrase_1").replace("tables.*", "tables.paraphrases"), 1)
    if old.startswith("mixes"):
        raw["mixes"]["paraclip"] |= {"a": "base", "b": "paraclip", "weights": [0.5, 0.5]}
    (path := tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    new = renamed.KEYS.get(old, "").replace("tasks.*", "tasks.paraphrase_1").replace("tables.*", "tables.paraphrases")
    with pytest.raises(InputError) as refusal:
        find_entry(load_settings(path).methods, "paraclip")
    wanted = f"it is now '{new.replace('*', 'paraclip')}'" if new else f"it is gone: {renamed.REMOVED[old]}"
    assert wanted in str(refusal.value)


def test_profiles_get_the_new_names_which_are_keys_of_this_version(settings: Settings) -> None:
    for new in renamed.KEYS.values():
        block: Any = settings
        for part in new.split(".")[:-1]:
            block = getattr(block, {"validate": "validation"}.get(part, part)) if part != "*" else None
            if block is None or isinstance(block, dict):
                break
        else:
            assert hasattr(block, new.split(".")[-1]), new
    new, said = renamed.upgraded(OLD)
    assert new == NEW
    assert len(said) == 9
    assert renamed.upgraded(NEW) == (NEW, [])


def test_the_command_rewrites_settings_and_moves_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = Path("components/methods/mine.py")
    for path, text in ((Path("params.yaml"), "evaluate: {ks: [1]}\n"), (Path("infra/profiles/shop.yaml"), OLD),
                       (own, "from components.methods.contract.losses import Losses\n")):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = {path: path.read_text() for path in Path().rglob("*.*") if path.is_file()}
    dry = CliRunner().invoke(app, ["upgrade", "--dry-run"])
    assert "+evaluate: {top_k: [1]}" in dry.output
    assert before == {path: path.read_text() for path in Path().rglob("*.*") if path.is_file()}
    with pytest.raises(
        InputError, match=r"method 'mine': components/methods/mine\.py is of an earlier .* upgrade` moves"
    ):
        find("components.training.methods", ["paraclip"], "mine", "METHOD", "method")
    done = CliRunner().invoke(app, ["upgrade"])
    assert done.exit_code == 0, done.output
    assert Path("infra/profiles/shop.yaml").read_text() == NEW
    moved = Path("components/training/methods/mine.py").read_text()
    assert moved == "from components.training.methods.contract.losses import Losses\n"
    assert not own.exists()
    assert "no file has names" in CliRunner().invoke(app, ["upgrade"]).output


def test_an_own_file_that_imports_what_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_kind").mkdir()
    (tmp_path / "own_kind" / "__init__.py").touch()
    (tmp_path / "own_kind" / "mine.py").write_text(
        "from components.methods.contract.optimisation import Optimisation\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"^own_kind/mine\.py does not load \(No module named .*`cliptune"):
        find("own_kind", ["mine"], "mine", "METHOD", "method")
