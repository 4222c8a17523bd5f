"""A real S3 server: folders and buckets, exports, DVC's remote, shards, and errors in one line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from components.core.compute.distributed import World
from components.core.pictures.storage import S3
from components.core.pictures.stored_pictures import Pictures
from components.core.settings import Settings, Shards
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS, SPLITS, UNUSABLE
from components.data import prepare
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.tokens import ClipTokenizer
from components.registry.export import export_encoder
from components.registry.formats import find_format
from components.training.rows.batches import BatchPlan
from components.training.rows.shards import ShardSource
from tests.support.shard_making import make_shards

pytestmark = pytest.mark.integration


def test_a_folder_is_uploaded_whole_and_listed_in_pages(bucket: str, tmp_path: Path, s3: Any) -> None:
    contents = {"empty": b"", "small": os.urandom(1000), "deep/in parts": os.urandom((101 << 20) + 7)}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    store, url = S3(), f"s3://{bucket}/prefix"
    store.upload(tmp_path, url)
    assert list(store.etags(url)) == sorted(f"{url}/{name}" for name in contents)
    assert {name: store.read(f"{url}/{name}") for name in contents} == contents
    assert store.exists(f"{url}/small")
    assert not store.exists(f"{url}/other")
    with pytest.raises(InputError, match="other is missing"):
        store.open(f"{url}/other")
    client = s3.client()
    for number in range(1_001):
        client.put_object(Bucket=bucket, Key=f"many/{number:04d}", Body=b"")
    assert list(S3().etags(f"s3://{bucket}/many/")) == [f"s3://{bucket}/many/{number:04d}" for number in range(1_001)]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "planted-secret"}, "may not be read"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "needs credentials"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "is out of reach"),
        ({"AWS_ENDPOINT_URL_S3": "http://me:planted-secret@127.0.0.1:9"}, "is out of reach"),
        ({"AWS_ENDPOINT_URL_S3": "nowhere"}, r"is out of reach \(Invalid endpoint"),
    ],
)
def test_a_fault_is_told_in_one_line(environment: dict[str, str], message: str, bucket: str, monkeypatch: Any) -> None:
    for key, value in ({"AWS_MAX_ATTEMPTS": "2", "AWS_EC2_METADATA_DISABLED": "true"} | environment).items():
        monkeypatch.setenv(key, value)
    with pytest.raises(InputError, match=message) as caught:
        S3().etags(f"s3://{bucket}/prefix")
    assert "\n" not in str(caught.value)
    assert "planted-secret" not in str(caught.value)


def test_exported_to_s3_and_fetched(bucket: str, tmp_path: Path, tiny_encoder: Encoder) -> None:
    tiny_encoder.save(tmp_path / "tiny")
    url = f"s3://{bucket}/encoders/tiny"
    assert url in export_encoder(str(tmp_path / "tiny"), "open_clip", url)
    (tmp_path / "fetched").mkdir()
    for one in S3().etags(f"{url}/"):
        (tmp_path / "fetched" / one.removeprefix(f"{url}/")).write_bytes(S3().read(one))
    found = find_format("open_clip").read(tmp_path / "fetched", ["a dog"], [Image.new("RGB", (16, 16))])
    np.testing.assert_allclose(found.texts, tiny_encoder.embed_texts(["a dog"]), atol=1e-5)


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _dvc(folder: Path, *arguments: str) -> str:
    return _run(folder, sys.executable, "-m", "dvc", *arguments)


def test_a_clone_pulls_what_another_clone_pushed(s3: Any, bucket: str, tmp_path: Path) -> None:
    origin, one, other = tmp_path / "origin.git", tmp_path / "one", tmp_path / "other"
    _run(tmp_path, "git", "init", "-q", "--bare", str(origin))
    _run(tmp_path, "git", "clone", "-q", str(origin), str(one))
    _dvc(one, "init", "-q")
    _dvc(one, "remote", "add", "--default", "store", f"s3://{bucket}/dvc")
    _dvc(one, "remote", "modify", "store", "endpointurl", s3.endpoint)
    contents = {"weights.bin": os.urandom(3_200_000), "shards/000.tar": os.urandom(5000), "shards/001.tar": b""}
    (one / "shards").mkdir()
    for name, content in contents.items():
        (one / name).write_bytes(content)
    _dvc(one, "add", "-q", "weights.bin", "shards")
    _dvc(one, "push", "-q")
    _run(one, "git", "add", ".")
    _run(one, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "data")
    _run(one, "git", "push", "-q", "origin", "HEAD")

    _run(tmp_path, "git", "clone", "-q", str(origin), str(other))
    assert not (other / "weights.bin").exists()
    _dvc(other, "pull", "-q")
    assert {name: (other / name).read_bytes() for name in contents} == contents
    assert "in sync" in _dvc(other, "status", "--cloud")
    secrets = [path for path in other.rglob("*") if path.is_file() and s3.secret_key.encode() in path.read_bytes()]
    assert secrets == []


TOKENIZER = ClipTokenizer(12)


@pytest.fixture
def uploaded(s3: Any, bucket: str, tmp_path: Path) -> tuple[str, str]:
    """The same shards on disk and in S3."""
    pattern = make_shards(tmp_path / "shards", 4, 30, broken={5, 44})
    for path in (tmp_path / "shards").iterdir():
        s3.client().upload_file(str(path), bucket, f"laion/{path.name}")
    return pattern, f"s3://{bucket}/laion/{{000..003}}.tar"


def _source(shards: str) -> ShardSource:
    settings = Shards(urls=shards, columns={"caption": "txt"})
    plan = BatchPlan(frozenset({"image", "caption"}), 8, 3, world=World())
    return ShardSource(settings, plan, TOKENIZER, Preparation(size=8))


def test_s3_equals_disk(uploaded: tuple[str, str]) -> None:
    disk, remote = (_source(shards) for shards in uploaded)
    assert disk.describe() == remote.describe()
    assert disk.steps_per_epoch == remote.steps_per_epoch == 15
    for one, other in zip(disk.epoch(0), remote.epoch(0), strict=True):
        assert (one.ids, one.cursor) == (other.ids, other.cursor)
        assert np.array_equal(one.tokens["caption"], other.tokens["caption"])
        assert torch.equal(one.pixels["image"], other.pixels["image"])
    assert disk.errors == remote.errors == {"not an image": 2}


def test_pairs_of_s3_equal_those_of_disk(uploaded: tuple[str, str], tmp_path: Path, raw_params: dict[str, Any]) -> None:
    found = []
    for shards in uploaded:
        given = {"source": "webdataset", "shards": shards, "max_unusable_share": 0.1}
        given["counts"] = {"train": 80, "val": 10, "test": 10}
        settings = Settings.model_validate(raw_params | {"prepare": raw_params["prepare"] | given})
        prepare.run(settings, tmp_path / "pairs", tmp_path / "evaluation")
        tables = {split: PAIRS.read(tmp_path / "pairs" / f"{split}.parquet") for split in SPLITS}
        with Pictures() as pictures:
            encoded = {split: pictures.of(rows.slice(0, 5)) for split, rows in tables.items()}
        found.append((encoded, {split: rows.drop_columns("file").to_pylist() for split, rows in tables.items()}))
        assert tables["train"]["file"][0].as_py().startswith(shards.partition("{")[0])
    assert found[0] == found[1]
    assert len(PAIRS.read(tmp_path / "pairs" / "train.parquet")) == 80
    reasons = UNUSABLE.read(tmp_path / "pairs" / "unusable.parquet")["reason"].to_pylist()
    assert [reason.split()[0] for reason in reasons] == ["000.tar/s00005", "001.tar/s00044"]


def test_reading_continues_after_broken_connections_and_a_replaced_object_is_an_error(s3: Any, bucket: str) -> None:
    content = os.urandom(20_000_000)
    s3.client().put_object(Bucket=bucket, Key="shard.tar", Body=content)
    with _breaking_proxy(s3.endpoint, 1_500_000) as (endpoint, breaks), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with S3().open(f"s3://{bucket}/shard.tar") as stream:
            assert b"".join(iter(partial(stream.read, 100_000), b"")) == content
        assert S3().read_part(f"s3://{bucket}/shard.tar", 9_000_000, 1_000) == content[9_000_000:9_001_000]
        assert len(breaks) == 3
    s3.client().put_object(Bucket=bucket, Key="shard.tar", Body=os.urandom(20_000_000))
    with S3().open(f"s3://{bucket}/shard.tar") as stream:
        stream.read(10)
        s3.client().put_object(Bucket=bucket, Key="shard.tar", Body=os.urandom(20_000_000))
        with pytest.raises(InputError, match=r"shard\.tar was replaced while it was read"):
            stream.read()


@pytest.mark.parametrize(
    ("environment", "target", "message"),
    [
        ({}, "laion/{000..009}.tar", r"laion/009\.tar is missing"),
        ({}, "nowhere", "no such folder"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "laion/{000..003}.tar", "may not be read .* check AWS_ACCESS_KEY_ID"),
    ],
)
def test_missing_and_forbidden_shards_are_named_at_the_start(
    environment: dict[str, str], target: str, message: str, uploaded: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    bucket = uploaded[1].split("/")[2]
    with pytest.raises(InputError, match=message):
        _source(f"s3://{bucket}/{target}")


def test_sizes_come_from_the_store(s3: Any, bucket: str, uploaded: tuple[str, str]) -> None:
    s3.client().put_object(Bucket=bucket, Key="laion/sizes.json", Body=json.dumps({"000.tar": 30}).encode())
    with pytest.raises(InputError, match=r"001\.tar has .* set samples_per_epoch"):
        _source(uploaded[1])


@contextmanager
def _breaking_proxy(endpoint: str, most: int) -> Iterator[tuple[str, list[int]]]:
    """An endpoint that passes everything on, but cuts the first three connections after `most` bytes of answers."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    breaks: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket, left: float) -> None:
        with suppress(OSError):
            while left > 0 and (data := source.recv(65_536)):
                target.sendall(data)
                left -= len(data)
        if left <= 0:
            breaks.append(1)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                threading.Thread(target=pump, args=(near, far, float("inf")), daemon=True).start()
                left = most if len(breaks) < 3 else float("inf")
                threading.Thread(target=pump, args=(far, near, left), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", breaks
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
