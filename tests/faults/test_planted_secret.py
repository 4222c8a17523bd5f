"""Secrets planted where users keep them appear in no output, file or record of the commands, failing or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
import yaml
from psycopg import sql

from tests.conftest import REPO
from tests.integration.postgres import PostgresServer
from tests.support.fake_llm_process import fake_llm
from tests.support.server_project import ServerProject
from tests.support.stage_project import make_trainable, write_params
from tests.support.warm_stages import Ended, run_stage

pytestmark = pytest.mark.integration
KEY, S3_SECRET, LOGIN = "sk-planted-5b1d7e", "s3-planted-90ce21", "login-planted-77aa3c"
CLI, SYNTHESIZE, TRAIN = "components.cli", "components.captions.synthesize", "components.training.train"
NOWHERE = "127.0.0.1:1"
ROWS = 20


@dataclass(frozen=True)
class Done:
    """The commands and their results.

    Attributes:
        root: the folder of all projects.
        ended: name of a command -> its exit code and output.
        databases: URLs of the databases that were written to.
        secrets: texts that must not be found, by name.
    """

    root: Path
    ended: dict[str, Ended]
    databases: tuple[str, ...]
    secrets: Mapping[str, str]

    def run(self, name: str, folder: Path, module: str, *arguments: str, environment: Mapping[str, str]) -> None:
        """Run a command to its end."""
        self.ended[name] = run_stage(folder, module, *arguments, environment=environment)


def _environment(tracking: str) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": KEY,
        "AWS_ACCESS_KEY_ID": "planted",
        "AWS_SECRET_ACCESS_KEY": S3_SECRET,
        "AWS_ENDPOINT_URL_S3": f"http://{NOWHERE}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MLFLOW_TRACKING_URI": tracking,
        "MLFLOW_TRACKING_USERNAME": "me",
        "MLFLOW_TRACKING_PASSWORD": LOGIN,
        "PREFECT_API_URL": f"http://me:{LOGIN}@{NOWHERE}/api",
        "PREFECT_API_AUTH_STRING": f"me:{LOGIN}",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "CLIPTUNE_TRACKING_WAIT_S": "0.5",
    }


def _dvc_repro(folder: Path, environment: Mapping[str, str]) -> Ended:
    """Stage `synthesize` of dvc.yaml, without its dependencies on the repository, run by DVC."""
    block = yaml.safe_load((REPO / "dvc.yaml").read_text("utf-8"))["stages"]["synthesize"]
    body = {name: block["do"][name] for name in ("cmd", "params", "outs")}
    stages = {"synthesize": {"foreach": block["foreach"], "do": body}}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"vars": ["params.yaml"], "stages": stages}))
    dvc = [sys.executable, "-m", "dvc"]
    for command in (["git", "init", "-q"], [*dvc, "init", "-q"]):
        subprocess.run(command, cwd=folder, check=True)
    seen = {**os.environ, **environment, "PYTHONPATH": str(REPO)}
    done = subprocess.run([*dvc, "repro"], cwd=folder, env=seen, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "dvc.lock").is_file()
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Done]:
    """Commands that succeed and commands that fail, all of them with every secret in their environment."""
    root, password = tmp_path_factory.mktemp("planted"), postgres_server.password
    runs, answers = postgres_server.new_database(), postgres_server.new_database()
    found = Done(root, {}, (runs, answers), {"key": KEY, "s3": S3_SECRET, "login": LOGIN, "password": password})
    raw = yaml.safe_load((REPO / "params.yaml").read_text("utf-8"))
    tracking = runs.replace("postgresql://", "postgresql+psycopg://")
    _synthesize(found, raw | {"synthesize": raw["synthesize"] | {"store": answers}}, _environment(tracking))
    _train(found, raw, tracking)
    _look(found, raw, f"postgresql+psycopg://me:{password}@{NOWHERE}/x", f"http://me:{password}@{NOWHERE}")
    # Here the test itself has written the password.
    for params in root.glob("*/params.yaml"):
        params.unlink()
    yield found
    for url in (runs, answers):
        postgres_server.drop_database(url)


def _synthesize(done: Done, raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Captions by a server that requires the key, in a store whose URL has the password."""
    folder = done.root / "captions"
    with fake_llm() as llm:
        llm.control("set", key=KEY)
        ServerProject.make(folder, raw, ROWS, llm.url)
        done.ended["dvc repro"] = _dvc_repro(folder, environment)
        done.run("answers stats", folder, CLI, "answers", "stats", environment=environment)
        # New revisions, so that the answers so far do not count.
        for name, options in (
            ("key quoted back", {"errors": {"http_400": 1.0}, "said": f"the key {KEY} is not welcome"}),
            ("key refused", {"key": "another"}),
        ):
            llm.control("set", **options)
            raw["synthesize"]["llms"]["fake"]["revision"] = name.replace(" ", "-")
            write_params(folder, raw)
            done.run(name, folder, SYNTHESIZE, "--task", "paraphrase_1", environment=environment)


def _train(done: Done, raw: dict[str, Any], tracking: str) -> None:
    """Runs in PostgreSQL, with the password in each place of its URL; databases that do not answer or refuse."""
    folder = done.root / "training"
    make_trainable(folder)
    small = {"method": "paraclip", "train_data": "data/validated", "batch_size": 16, "epochs": 1}
    small |= {"lr": 0.001, "warmup_steps": 1}
    train = {"checkpoint_dir": "state/train", "validation_images": 12, "validate_every": None}
    write_params(folder, raw | {"train": train, "methods": {"paraclip": small, "again": small}})
    password = done.secrets["password"]
    addresses = {
        "train": tracking,
        "train, password as an option": f"{tracking.replace(f':{password}@', '@')}?password={password}",
        "train, tracking unavailable": f"postgresql+psycopg://me:{password}@{NOWHERE}/x",
        "train, tracking refuses": tracking.replace(password, LOGIN),
        "train, tracking server unavailable": f"http://me:{password}@{NOWHERE}",
    }
    for name, uri in addresses.items():
        entry = "again" if "option" in name else "paraclip"
        done.run(name, folder, TRAIN, "--method", entry, environment=_environment(uri))
    done.run("promote", folder, CLI, "promote", "--dry-run", environment=_environment(tracking))
    done.run("doctor", folder, CLI, "doctor", "--json", environment=_environment(tracking))


def _look(done: Done, raw: dict[str, Any], address: str, login: str) -> None:
    """No server answers, and every address holds the password."""
    folder = done.root / "unavailable"
    models = {"fake": {"engine": "server", "urls": [f"{login}/v1"], "model": "fake"}}
    synthesize = raw["synthesize"] | {"store": address, "llms": models, "default_llm": "fake", "cached_answers": None}
    tasks = {"paraphrase_1": {"table": "paraphrases", "input": "data/pairs/train.parquet"}}
    write_params(folder, raw | {"synthesize": synthesize | {"tasks": tasks}})
    option = f"{address}?password={done.secrets['password']}"
    for name, uri in (("server", login), ("database", address), ("option", option)):
        done.run(f"doctor, {name} unavailable", folder, CLI, "doctor", "--json", environment=_environment(uri))
    tracking = f"sqlite:///{folder}/mlflow.db"
    done.run("login in a URL", folder, SYNTHESIZE, environment=_environment(tracking))
    models["fake"]["urls"] = [f"http://{NOWHERE}/v1"]
    write_params(folder, raw | {"synthesize": synthesize | {"tasks": tasks}})
    done.run("store unavailable", folder, SYNTHESIZE, environment=_environment(tracking))


WELL = {"dvc repro", "answers stats", "train", "train, password as an option"}


def test_no_output_holds_a_secret(done: Done) -> None:
    assert {name for name, ended in done.ended.items() if ended.code == 0} == WELL
    for name, ended in done.ended.items():
        assert {key for key, secret in done.secrets.items() if secret in ended.output + ended.errors} == set(), name


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("key refused", "the environment variable OPENAI_API_KEY"),
        ("train, tracking unavailable", "MLFLOW_TRACKING_URI"),
        ("train, tracking refuses", "MLFLOW_TRACKING_URI"),
        ("train, tracking server unavailable", "MLFLOW_TRACKING_URI"),
        ("login in a URL", "api_key_env"),
        ("store unavailable", "://***@"),
    ],
)
def test_failures_are_one_line_that_names_the_place(name: str, place: str, done: Done) -> None:
    (line,) = done.ended[name].complaints
    assert place in line


def test_no_file_and_no_row_of_a_database_holds_a_secret(done: Done) -> None:
    files = [path for path in done.root.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"dvc.lock", "run.json", "encoder.json", "paraphrase_1.parquet"} <= names
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += repr(pq.read_table(path).to_pylist()).encode() + repr(pq.read_metadata(path).metadata).encode()
        assert {key for key, secret in done.secrets.items() if secret.encode() in content} == set(), path
    for url in done.databases:
        with psycopg.connect(url) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            assert len(tables) >= 4
            for (table,) in tables:
                query = sql.SQL("SELECT row::text FROM {} AS row").format(sql.Identifier(table))
                rows = "".join(str(row[0]) for row in connection.execute(query))
                assert {key for key, secret in done.secrets.items() if secret in rows} == set(), table
