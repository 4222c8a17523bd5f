"""A project of 0.2.0 opens: nothing that was paid for is asked again, and newer files are refused by name.

`0.2.0.tar.xz` is a small project that 0.2.0 wrote. A release adds one of its own, and none is ever changed. It has 96
drawn pictures with captions, a tiny base encoder, 328 paid answers, a test set with ten reviews, six blind votes, two
promotions, an image index, an export, a stopped training, and a method and a benchmark of the user's own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest

from components.captions import synthesize
from components.captions.generating.store import GenerationStore
from components.captions.test_queries import test_set
from components.cli.costing.cost import Costing, load_rates
from components.cli.doctor.check import Installation
from components.cli.doctor.servers import check_generation_store
from components.core.settings import Settings, load_settings
from components.core.system.errors import InputError
from components.core.system.profiles import settings_with
from components.core.tables import formats
from components.core.tables.folders import EMBEDDINGS, PAIRS
from components.core.tables.written_queries import read_summary
from components.core.tracking import make_client
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.sidecar import read_sidecar
from components.encoders.embeddings import ImageEmbeddings
from components.evaluation.scoring.results import read_report
from components.registry import champion, decision
from components.registry.encoder_lookup import find_encoder
from components.registry.model import CHAMPION, find_alias
from components.registry.promotion import promote
from components.registry.reviews import Reviews, read_reviewed
from components.serving.index.image_index import read_facts
from components.serving.server.served import Loading
from components.training.data import TrainingFiles
from components.training.train import run as train
from tests.support.checkout import make_checkout, newcomer
from tests.support.scripted_llm import said, scripted

ANSWERS, STEPS = 328, 180
STOPPED = Path("state/train/paraclip-4bb15e7f925d7086")
TEXTS = ["a picture of a red square above a big blue circle", "a white square below a big black circle"]


ARCHIVE = Path(__file__).with_name("0.2.0.tar.xz")
ADDRESS = "http://127.0.0.1:8642/v1"
"""Of the language model, in its profile."""
_PLACE = "/project"
"""Where it was, in MLflow's database."""


def unpack(folder: Path, url: str) -> None:
    """A checkout of this version with the kept project in it, whose language model is at `url`."""
    make_checkout(folder)
    pulled = (folder / "params.yaml").read_text("utf-8")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    # As after `cliptune profile reset` and `git pull`.
    (folder / "params.yaml").write_text(pulled, encoding="utf-8")
    profile = folder / "infra/profiles/shop.yaml"
    profile.write_text(profile.read_text("utf-8").replace(ADDRESS, f"{url}/v1"), encoding="utf-8")
    with closing(sqlite3.connect(folder / "mlruns/mlflow.db")) as database, database:
        for table, column in _addresses(database):
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {column} LIKE ?",
                (str(folder), len(_PLACE) + 1, f"{_PLACE}/%"),
            )


def _addresses(database: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [(table, row[1]) for table in tables for row in database.execute(f"PRAGMA table_info({table})")]
    found = f"SELECT count(*) FROM {{}} WHERE {{}} LIKE '{_PLACE}/%'"
    return [place for place in columns if database.execute(found.format(*place)).fetchone()[0]]


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m` in the project, as a user runs it."""
    environment = newcomer(folder) | {"OPENAI_API_KEY": "none"}
    whole = [sys.executable, "-m", *arguments]
    return subprocess.run(whole, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The project after the steps of docs/upgrade.md; no question about a caption may reach its language model."""
    folder = tmp_path_factory.mktemp("kept") / "project"
    folder.mkdir()
    with scripted(lambda _body, _number: said("yes")) as llm:
        unpack(folder, llm.url.removesuffix("/v1"))
        for arguments in (["upgrade"], ["profile", "apply", "shop"]):
            done = command(folder, "components.cli", *arguments)
            assert done.returncode == 0, done.stderr
        yield folder
        assert [body for body in llm.bodies if "a picture of" in json.dumps(body)] == []


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of the project, which is the current folder."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlruns/mlflow.db")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    return load_settings()


def test_the_plan_names_every_stage_and_own_files_work(project: Path) -> None:
    planned = command(project, "components.cli", "plan", "--json")
    assert planned.returncode == 0, planned.stderr
    assert len(json.loads(planned.stdout)) == 12
    assert not (project / "components/methods").exists() or not list((project / "components/methods").glob("*.py"))
    code = (
        "from components.training.methods.registry import find_method; "
        "from components.evaluation.benchmarks.project import find_benchmark; "
        "print(find_benchmark('own_words').metrics[0].name); find_method('mine')"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert found.stdout == "same_first\n", found.stderr
    # A method is written in another way since: one line says so.
    assert "components/training/methods/mine.py does not load (" in found.stderr.splitlines()[-1]


def test_answers_and_the_test_set_are_kept(here: Settings, tmp_path: Path) -> None:
    with closing(GenerationStore(here.synthesize.store)) as store:
        assert store.count() == ANSWERS
        assert store.export_parquet(tmp_path / "answers.parquet") == ANSWERS
    with closing(GenerationStore(f"sqlite:///{tmp_path / 'other.db'}")) as other:
        assert other.import_parquet(Path("state/answers.parquet")) == ANSWERS
        assert other.import_parquet(tmp_path / "answers.parquet") == 0
    for task in here.synthesize.tasks:
        counts = synthesize.run(here, task)
        assert (counts.replayed, counts.generated, counts.failed) == (62, 0, 0)
    before = read_summary()
    assert test_set.run(here) == before
    (cost,) = Costing(here, load_rates()).of(["test_set"])
    assert cost.questions == 0


def test_reviews_are_copied_and_votes_stay(here: Settings) -> None:
    found = read_reviewed(here.synthesize.store)
    assert found is not None
    assert (found.read, found.right) == (10, 9)
    with closing(sqlite3.connect("state/generations.db")) as database:
        assert database.execute("SELECT count(*) FROM votes").fetchone() == (6,)


def test_registered_versions_load_serve_and_roll_back(here: Settings) -> None:
    model, client = here.promote.model, make_client()
    expected = Encoder.load(Path("models/paraclip")).embed_texts(TEXTS)
    for version in ("1", "2"):
        vectors = np.array(mlflow.pyfunc.load_model(f"models:/{model}/{version}").predict(TEXTS))
        assert np.allclose(vectors, expected, atol=1e-5) == (version == "2")
    served = Loading().first(f"{model}@champion")
    assert (served.id, served.dim) == (f"{model}/2", 16)
    assert [one.outcome for one in decision.history()] == ["promoted", "promoted"]
    for version in ("1", "2"):
        champion.rollback(here)
        found = find_alias(client, model, CHAMPION)
        assert found is not None
        assert str(found.version) == version
    assert promote(here).outcome == "already champion"


def test_an_export_is_read_and_an_index_is_refused_with_its_rebuild(here: Settings) -> None:
    exported = find_encoder("local-dir:exports/open_clip", device="cpu").encoder
    assert np.allclose(exported.embed_texts(TEXTS), Encoder.load(Path("models/paraclip")).embed_texts(TEXTS), atol=1e-5)
    with pytest.raises(InputError, match=r"^index has format 1, this version reads 2: .*`cliptune index build <new"):
        read_facts(Path("index"))


def test_a_stopped_training_continues_and_0_2_0_reads_its_encoder(
    here: Settings, project: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = here.methods["paraclip"]
    files = TrainingFiles(validated=Path(entry["train_data"]), models=Path("continued"))
    settings = settings_with("longer")
    # Its settings had other names, so its folder has: a run names it, and continues it under the new name.
    assert train(settings, "paraclip", files)
    named = re.search(
        rf"{STOPPED} has checkpoints of other .* which stay: to continue them, rename it (\S+)", caplog.text
    )
    assert named is not None
    STOPPED.rename(stopped := Path(named[1]))
    assert train(settings, "paraclip", files)
    assert f"{stopped}/step-00000110 was made by other code, and the run continues" in caplog.text
    assert f"{STEPS * 16}/{STEPS * 16}" in capsys.readouterr().err
    assert not stopped.exists()
    # A version of 0.2.0 keeps that version's code.
    code = next((project / "mlruns").rglob("code/components")).parent
    load = "print(Encoder.load(Path(sys.argv[1])).embed_texts(['a red square']).shape)"
    script = f"import sys; from pathlib import Path; from components.encoders.adapter.encoder import Encoder; {load}"
    environment = {**os.environ, "PYTHONPATH": str(code)}
    command = [sys.executable, "-c", script, str(project / "continued/paraclip")]
    done = subprocess.run(command, cwd=project.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 16)\n", done.stderr


NEWER: dict[str, Callable[[Settings], Any]] = {
    "models/base/encoder.json": lambda _: read_sidecar(Path("models/base")),
    "data/test_set/summary.json": lambda _: read_summary(),
    "data/embeddings/manifest.json": lambda _: ImageEmbeddings.open(EMBEDDINGS, "val", PAIRS / "val.parquet"),
    "index/index.json": lambda _: read_facts(Path("index")),
    "reports/metrics/base.json": lambda _: read_report("base", Path("reports/metrics")),
    "reports/promotion/latest.json": lambda _: decision.latest(),
    "mlruns/artifacts/shop/*/artifacts/registered/*/artifacts/metrics.json": promote,
}
"""File -> what reads it."""
NEWER_BY_NAME = r"made by a newer cliptune \(.*\): update cliptune$"


@pytest.mark.parametrize("pattern", NEWER)
def test_a_raised_number_is_refused_by_name_and_nothing_changes(pattern: str, here: Settings) -> None:
    before = {path: path.read_bytes() for path in Path().glob(pattern)}
    assert before
    try:
        for path, content in before.items():
            path.write_text(json.dumps(json.loads(content) | {"format": 9}), encoding="utf-8")
        raised = {path: path.read_bytes() for path in before}
        with pytest.raises(
            formats.NewerFormatError, match=r"made by a newer cliptune \(.*\): update cliptune$"
        ) as error:
            NEWER[pattern](here)
        assert "delete" not in str(error.value)
        assert raised == {path: path.read_bytes() for path in before}
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def test_a_newer_store_and_newer_reviews_are_refused_by_name(here: Settings, tmp_path: Path) -> None:
    shutil.copy("state/generations.db", tmp_path / "generations.db")
    url = f"sqlite:///{tmp_path / 'generations.db'}"
    with closing(Reviews(url)) as reviews:
        assert len(reviews.all()) == 10
    for file, statement, reader in (
        ("generations.db", "UPDATE alembic_version SET version_num = '0009'", GenerationStore),
        ("reviews.db", "PRAGMA user_version = 9", lambda url: Reviews(url).all()),
    ):
        with closing(sqlite3.connect(tmp_path / file)) as database, database:
            database.execute(statement)
        with pytest.raises(formats.NewerFormatError, match="made by a newer cliptune"):
            reader(url)
    newer = here.model_copy(update={"synthesize": here.synthesize.model_copy(update={"store": url})})
    with pytest.raises(formats.NewerFormatError, match="made by a newer cliptune"):
        check_generation_store(Installation({}, Path(), newer))
