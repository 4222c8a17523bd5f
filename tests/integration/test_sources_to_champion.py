"""From each source's published format to a champion: import, prepare, embed, train, evaluate, promote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from components.cli import app
from components.cli.edited_params import overlaid
from components.core.settings import Settings, load_settings
from components.core.tables.records import PAIRS
from components.core.tracking import make_client
from components.data import prepare
from components.encoders.adapter.encoder import Encoder
from components.encoders.embed import run as embed
from components.evaluation.scoring.evaluate import run as evaluate
from components.registry.model import CHAMPION, find_alias
from components.registry.promotion import promote
from components.training.train import run as train
from tests.support.coloured_squares import COLOURS, EACH, ENTRY, Shown, shown_squares, write_folder
from tests.support.imported_project import start_project
from tests.support.registry_project import lock_results
from tests.support.shard_making import write_tar

REPO = Path(__file__).parents[2]
RECALL = "retrieval/t2i_recall_at_5"


def _webdataset(folder: Path, shown: Shown, _encoder: Encoder) -> None:
    pairs = [(name, raw, text) for name, (raw, captions) in shown.items() for text in captions]
    for shard in range(4):
        members = []
        for number, (_, raw, text) in list(enumerate(pairs))[shard::4]:
            members += [(f"{number:09d}.png", raw), (f"{number:09d}.txt", text.encode())]
        write_tar(folder / f"{shard:05d}.tar", members)


def _embeddings(folder: Path, shown: Shown, encoder: Encoder) -> None:
    pairs = [(raw, captions[0]) for raw, captions in shown.values()]
    (folder / "img_emb").mkdir(parents=True)
    (folder / "metadata").mkdir()
    np.save(folder / "img_emb/img_emb_0.npy", encoder.image_features([raw for raw, _ in pairs]).astype(np.float16))
    pq.write_table(pa.table({"caption": [text for _, text in pairs]}), folder / "metadata/metadata_0.parquet")


def _query_log(folder: Path, _shown: Shown, _encoder: Encoder) -> None:
    """Noisy squares; users who search for a colour often click its squares, and by mistake one of another colour."""
    rng = np.random.default_rng(0)
    lines, names = ["query\timage\tclicks"], list(COLOURS)
    folder.mkdir()
    for number in range(EACH * len(names)):
        name = names[number % len(names)]
        pixels = np.clip(np.array(COLOURS[name]) + rng.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines += [f"{name} square\t{number}.png\t{rng.integers(20, 90)}"]
        lines += [f"something {name}\t{number}.png\t"] * 3
        lines += [f"{rng.choice(names)} square\t{number}.png\t0.5"]
    (folder / "queries.tsv").write_text("\n".join(lines) + "\n")


WRITERS = {
    "folder": lambda folder, shown, _encoder: write_folder(folder, shown),
    "webdataset": _webdataset,
    "embeddings": _embeddings,
    "query_log": _query_log,
}


@pytest.fixture(params=WRITERS)
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, track_in: Callable[[Path], None], tiny_encoder: Encoder
) -> Settings:
    """The settings of the imported folder, in a new project, which is the current folder."""
    track_in(tmp_path)
    start_project(tmp_path)
    WRITERS[request.param](tmp_path / "shop", shown_squares(), tiny_encoder)
    done = CliRunner().invoke(app, ["init", "shop"])
    assert done.exit_code == 0, done.output
    assert f"source '{request.param}'" in done.output
    raw: dict[str, Any] = yaml.safe_load(overlaid("shop"))
    raw |= {"methods": {"captions": ENTRY}, "compare_encoders": ["base", "captions"]}
    # No model writes paraphrases here.
    raw["evaluate"] |= {"benchmarks": ["retrieval"]}
    raw["promote"] |= {"metric": RECALL, "require_valid_tables": [], "require_benchmarks": ["retrieval"]}
    raw["train"] = {"checkpoint_dir": "state/train", "validation_images": 0}
    Path("params.yaml").write_text(yaml.safe_dump(raw))
    return load_settings()


def test_a_source_becomes_a_champion(settings: Settings, tiny_encoder: Encoder) -> None:
    prepare.run(settings)
    pairs = PAIRS.read(Path("data/pairs/train.parquet")).to_pandas()
    if settings.prepare.source == "query_log":
        assert set(pairs.loc[pairs["caption"].str.startswith("something"), "weight"]) == {3.0}
    else:
        assert pairs["image"].isna().sum() == settings.prepare.counts.train
    tiny_encoder.save(Path("models/base"))
    embed(settings)
    train(settings, "captions")
    base, tuned = (evaluate(settings, name).metrics[RECALL].value for name in ("base", "captions"))
    assert tuned > base + (0.2 if settings.prepare.source == "query_log" else 0), (base, tuned)
    lock_results()
    decision = promote(settings)
    assert (decision.encoder, decision.outcome) == ("captions", "promoted"), decision.rules
    champion = find_alias(make_client(), settings.promote.model, CHAMPION)
    assert champion is not None
    assert champion.tags["encoder"] == "captions"
