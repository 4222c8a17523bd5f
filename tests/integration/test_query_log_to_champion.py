"""From a product's log to a champion: import, prepare, embed, train with weights, evaluate, promote."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from components.cli import app
from components.core.profiles import overlaid
from components.core.records import PAIRS
from components.core.settings import Settings, load_settings
from components.data import prepare
from components.encoders.adapter.encoder import Encoder
from components.encoders.embed import run as embed
from components.evaluation.evaluate import run as evaluate
from components.registry.model import CHAMPION, find_alias
from components.registry.promotion import promote
from components.tracking import make_client
from components.training.train import run as train
from tests.support.coloured_squares import COLOURS, EACH, ENTRY
from tests.support.registry_project import lock_results

REPO = Path(__file__).parents[2]


def _write_log(folder: Path) -> None:
    """Noisy squares of a colour; people who search for it click them often, and by mistake one of another colour."""
    rng = np.random.default_rng(0)
    lines = ["query\timage\tclicks"]
    names = list(COLOURS)
    folder.mkdir()
    for number in range(EACH * len(names)):
        name = names[number % len(names)]
        pixels = np.clip(np.array(COLOURS[name]) + rng.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format="PNG")
        (folder / f"{number}.png").write_bytes(stream.getvalue())
        lines += [f"{name} square\t{number}.png\t{rng.integers(20, 90)}"]
        lines += [f"something {name}\t{number}.png\t"] * 3
        lines += [f"{rng.choice(names)} square\t{number}.png\t0.5"]
    (folder / "queries.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def settings(tmp_path: Path, track_in: Callable[[Path], None]) -> Settings:
    """Those of the imported folder, in a project of their own that is the current folder."""
    track_in(tmp_path)
    shutil.copy(REPO / "params.yaml", tmp_path)
    shutil.copytree(REPO / "infra" / "profiles", tmp_path / "infra" / "profiles")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *command], check=True)
    _write_log(tmp_path / "shop")
    done = CliRunner().invoke(app, ["import", "shop"])
    assert done.exit_code == 0, done.output
    assert "source 'query_log', known by queries.tsv; images of val and test are drawn" in done.output
    raw: dict[str, Any] = yaml.safe_load(overlaid("shop"))
    raw |= {"methods": {"clicks": ENTRY}, "encoders": ["base", "clicks"]}
    raw["promote"] |= {"validation": []}
    raw["train"] = {"state": "state/train", "held_out": 0}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    return load_settings()


def test_a_log_becomes_a_champion(settings: Settings, tiny_encoder: Encoder) -> None:
    prepare.run(settings)
    pairs = PAIRS.read(Path("data/pairs/train.parquet")).to_pandas()
    assert set(pairs.loc[pairs["caption"].str.startswith("something"), "weight"]) == {3.0}
    tiny_encoder.save(Path("models/base"))
    embed(settings)
    train(settings, "clicks")
    recall = "retrieval/t2i_recall_at_5"
    base, clicks = (evaluate(settings, name).metrics[recall].value for name in ("base", "clicks"))
    assert clicks > base + 0.2, (base, clicks)
    lock_results()
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("clicks", "promoted"), decision.rules
    champion = find_alias(make_client(), settings.promote.model, CHAMPION)
    assert champion is not None
    assert champion.tags["encoder"] == "clicks"
