"""Streamed batches are reproducible from any cursor and rank, and nothing is lost without a reason that is named."""

from __future__ import annotations

import hashlib
import io
import logging
import shutil
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from components.core.compute.distributed import World
from components.core.pictures.shard_files import ShardFiles
from components.core.pictures.shard_reader import Fault, RawSample
from components.core.settings import Shards
from components.core.system.errors import InputError
from components.data.leaks.keys import picture_key, text_key
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.images import Preparation
from components.encoders.adapter.tokens import ClipTokenizer
from components.training.rows import shards as streaming
from components.training.rows.batches import Batch, BatchPlan
from components.training.rows.shards import DecodedSample, SampleDecoder, ShardOrder, ShardSource, shards_hash
from tests.support.shard_making import make_shards, picture, write_tar

TOKENIZER = ClipTokenizer(12)
BROKEN = {3, 4, 17, 30, 31, 32, 58}
ANY = {"max_error_share": 1.0}


def _source(urls: str, batch_size: int = 4, **options: Any) -> ShardSource:
    """Options of the settings `Shards`, of `BatchPlan` and of the source."""

    def taken(*names: str) -> dict[str, Any]:
        return {name: options.pop(name) for name in names if name in options}

    shards = Shards(
        urls=urls, **({"columns": {"caption": "txt"}} | taken("columns", "samples_per_epoch", "max_error_share"))
    )
    plan = BatchPlan(
        frozenset({"image"} | set(options.pop("wanted", {"caption"}))), batch_size, 5, **taken("draws", "world")
    )
    return ShardSource(shards, plan, TOKENIZER, Preparation(size=8), **options)


@pytest.fixture(scope="module", autouse=True)
def _small_buffer() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_BUFFER", 6)
        yield


def _same(one: Batch, other: Batch) -> bool:
    return (one.ids, one.cursor) == (other.ids, other.cursor) and all(
        np.array_equal(rows, getattr(other, kind)[column])
        for kind in ("tokens", "lengths", "pixels")
        for column, rows in getattr(one, kind).items()
    )


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six shards of ten samples, seven of which cannot be used."""
    return make_shards(tmp_path_factory.mktemp("leaky"), 6, 10, BROKEN)


@pytest.fixture(scope="module")
def whole(leaky: str) -> list[Batch]:
    """An uninterrupted epoch of it."""
    return list(_source(leaky, **ANY).epoch(2))


def _numbers(batches: list[Batch]) -> list[int]:
    return [int(name.rpartition("/s")[2]) for batch in batches for name in batch.ids]


def test_a_batch_matches_ids_texts_and_pixels_and_a_column_unread_costs_nothing(tmp_path: Path) -> None:
    texts = {"caption": "txt", "rewrite": "json:rewrite"}
    source = _source(make_shards(tmp_path, 2, 8), columns=texts, max_error_share=0.0)
    batch, *others = source.epoch(0)
    assert sorted(_numbers([batch, *others])) == list(range(16))
    assert set(batch.tokens) == {"caption"}
    numbers = _numbers([batch])
    assert len(set(numbers)) == 4
    expected = TOKENIZER([f"caption {number}" for number in numbers])
    assert np.array_equal(batch.tokens["caption"], expected)
    assert np.array_equal(batch.lengths["caption"], TOKENIZER.lengths(expected))
    assert torch.equal(batch.pixels["image"], Preparation(size=8).decode([picture(number) for number in numbers]))
    assert batch.pixels["image"].shape == (4, 3, 8, 8)
    assert batch.features == {}


def test_the_stream_is_the_same_every_time(leaky: str, whole: list[Batch], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WORKERS", "_AHEAD", "_AHEAD_PER_WORKER"):
        monkeypatch.setattr(streaming, name, 1)
    again = list(_source(leaky, **ANY).epoch(2))
    assert len(again) == len(whole) == 60 // 4
    assert all(_same(one, other) for one, other in zip(whole, again, strict=True))
    other = list(_source(leaky, **ANY).epoch(3))
    assert [batch.ids for batch in other] != [batch.ids for batch in whole]


@given(place=st.integers(0, 15))
def test_going_on_from_any_cursor_gives_the_rest(place: int, leaky: str, whole: list[Batch]) -> None:
    cursor = whole[place - 1].cursor if place else 0
    rest = list(_source(leaky, **ANY).epoch(2, cursor))
    assert len(rest) == len(whole) - place
    assert all(_same(one, other) for one, other in zip(whole[place:], rest, strict=True))


def test_samples_before_the_cursor_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: set[str] = set()
    source = _source(make_shards(tmp_path, 2, 100), samples_per_epoch=100)
    batches = list(source.epoch(0))
    plain = source._decoder

    def noted(sample: RawSample) -> DecodedSample | Fault:
        decoded.add(sample.name)
        return plain(sample)

    monkeypatch.setattr(source, "_decoder", noted)
    list(source.epoch(0, batches[11].cursor))
    assert {name for batch in batches[12:] for name in batch.ids} <= decoded
    assert not {name for batch in batches[:12] for name in batch.ids} & decoded


def test_lost_samples_are_replaced_from_the_next_order(whole: list[Batch]) -> None:
    ids = [name for batch in whole for name in batch.ids]
    assert len(ids) == 60
    assert len(set(ids)) == 60 - len(BROKEN)
    assert not {int(name[-5:]) for name in ids} & BROKEN


@pytest.mark.parametrize("shards", [4, 3])
def test_two_ranks_take_as_many_steps_with_different_samples(shards: int, tmp_path: Path) -> None:
    urls = make_shards(tmp_path, shards, 8)
    batches = [list(_source(urls, world=World(rank, 2)).epoch(1)) for rank in range(2)]
    assert [len(rank) for rank in batches] == [shards * 8 // 4] * 2
    assert all(len(batch.ids) == 2 for rank in batches for batch in rank)
    # Two ranks share three shards unevenly, so that one of them repeats samples.
    if shards == 4:
        assert len({name for rank in batches for batch in rank for name in batch.ids}) == 32


@pytest.mark.parametrize(("samples", "steps"), [(None, 4), (9, 2), (40, 10)])
def test_an_epoch_is_all_whole_batches_or_as_many_as_set(samples: int | None, steps: int, tmp_path: Path) -> None:
    source = _source(make_shards(tmp_path, 2, 9), samples_per_epoch=samples)
    ids = [name for batch in source.epoch(0) for name in batch.ids]
    assert len(ids) == 4 * source.steps_per_epoch == 4 * steps
    assert len(set(ids)) == min(len(ids), 18)


def test_errors_are_counted_by_reason_and_logged_safely(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_shards(tmp_path, 2, 20, broken=range(8))
    write_tar(tmp_path / "002.tar", [("../a\x1b[2J.png", picture(1)), ("../a\x1b[2J.txt", b"x"), ("b.png", picture(2))])
    source = _source(str(tmp_path), samples_per_epoch=43, batch_size=32, **ANY)
    with caplog.at_level(logging.WARNING):
        batches = list(source.epoch(0))
    assert sum(batch.lost for batch in batches) == 10
    assert source.errors == {"not an image": 8, "unsafe name": 1, "no text": 1}
    assert sum("not an image" in line for line in caplog.text.splitlines()) == 5
    assert r"002.tar: sample '../a\x1b[2J' is left out: unsafe name" in caplog.text


def test_too_many_errors_stop_the_run_and_a_broken_shard_counts_for_all_its_samples(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, 2, 600, broken=range(0, 1200, 10))
    with pytest.raises(InputError, match=r"101 of 1001 samples cannot be used .*not an image.* raise max_error_share"):
        list(_source(shards).epoch(0))
    assert len(list(_source(shards, max_error_share=0.2).epoch(0))) == 300
    (tmp_path / "001.tar").write_bytes(b"")
    with pytest.raises(InputError, match="600 broken shard"):
        list(_source(shards, max_error_share=0.5).epoch(0))


@pytest.mark.parametrize(
    ("shards", "samples", "options", "message"),
    [
        (1, 3, {}, "toy: the shards give 3 samples, fewer than batch_size 4"),
        (1, 0, {"samples_per_epoch": 8}, "have no samples"),
        (2, 8, {"batch_size": 3, "world": World(0, 3)}, "2 shards cannot be shared by 3 ranks"),
        (1, 4, {"wanted": ["other"]}, "no member of the shards gives the text column 'other'"),
        (1, 4, {"wanted": ["either"], "draws": {"either": {"caption": 1, "other": 1}}}, "the text column 'other'"),
    ],
    ids=["too few samples", "empty", "too few shards", "unknown column", "unknown column of a draw"],
)
def test_bad_shards_are_refused(
    shards: int, samples: int, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def stream() -> None:
        source = _source(make_shards(tmp_path, shards, samples), **options)
        source.check("toy")
        list(source.epoch(0))

    with pytest.raises(InputError, match=message):
        stream()


def test_text_columns_come_from_json_members_and_drawn_ones_from_either(tmp_path: Path) -> None:
    texts = b'{"a": "red", "b": "blue"}'
    pairs = [((f"{number}.png", picture(number)), (f"{number}.json", texts)) for number in range(40)]
    write_tar(tmp_path / "0.tar", [member for pair in pairs for member in pair])
    columns, draws = {"a": "json:a", "b": "json:b"}, {"either": {"a": 3.0, "b": 1.0}}
    source = _source(str(tmp_path), 20, samples_per_epoch=40, columns=columns, draws=draws, wanted=["a", "either"])
    batches = list(source.epoch(0))
    assert set(batches[0].tokens) == {"a", "either"}
    red, blue = TOKENIZER(["red", "blue"])
    drawn = np.concatenate([batch.tokens["either"] for batch in batches])
    reds = int((drawn == red).all(axis=1).sum())
    assert reds + int((drawn == blue).all(axis=1).sum()) == 40
    assert 20 < reds < 40
    rest = list(source.epoch(0, batches[0].cursor))
    assert np.array_equal(rest[0].tokens["either"], batches[1].tokens["either"])


def test_a_stream_describes_its_shards_and_ranks_for_a_resumed_run(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, 4, 8)
    one, two = _source(shards).describe(), _source(shards, world=World(1, 2)).describe()
    assert one["kind"] == "shards"
    assert (one["ranks"], two["ranks"]) == ("1", "2")
    assert one["shards"] == two["shards"] != _source(f"{tmp_path}/{{000..002}}.tar").describe()["shards"]


def test_closing_an_epoch_leaves_no_thread_and_a_shard_that_vanishes_is_named(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    source = _source(make_shards(tmp_path, 2, 50))
    batches = source.epoch(0)
    next(batches)
    assert set(threading.enumerate()) > before
    batches.close()
    assert set(threading.enumerate()) == before
    list(source.epoch(1))
    assert set(threading.enumerate()) == before
    (tmp_path / "001.tar").unlink()
    with pytest.raises(InputError, match=r"001\.tar is missing"):
        list(source.epoch(0))


def test_held_out_images_are_left_out_and_counted_but_are_no_errors(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, 3, 10)
    held = {hashlib.sha256(picture(number)).hexdigest()[:16] for number in (2, 11, 12, 29)}
    source = _source(shards, held_out=held, max_error_share=0.0)
    batches = list(source.epoch(0))
    assert len(batches) == 30 // 4
    assert not {2, 11, 12, 29} & set(_numbers(batches))
    # The four are replaced from the next order, in which more of them may come.
    assert source.held_out >= 4
    assert not source.errors
    assert sum(batch.lost for batch in batches) == 0
    for place in (1, 4):
        rest = list(_source(shards, held_out=held).epoch(0, batches[place].cursor))
        assert all(_same(one, other) for one, other in zip(rest, batches[place + 1 :], strict=True))


@pytest.mark.parametrize("why", ["broken", "held out"])
def test_shards_without_a_usable_sample_stop_the_run_however_many_may_be_lost(why: str, tmp_path: Path) -> None:
    shards = make_shards(tmp_path, 2, 6, range(12) if why == "broken" else ())
    held = {hashlib.sha256(picture(number)).hexdigest()[:16] for number in range(12)}
    reason = "not an image" if why == "broken" else "held out"
    with pytest.raises(InputError, match=rf"\.tar and the other shards of rank 0 have no usable sample \(.*{reason}"):
        list(_source(shards, held_out=held, **ANY).epoch(0))


PER_SHARD = 5


def _read(shard: str) -> Iterator[RawSample]:
    for number in range(PER_SHARD):
        yield RawSample(shard, str(number))


def _names(shards: int, count: int, *, buffer: int = 4, seed: int = 1, epoch: int = 0, world: World) -> list[str]:
    order = ShardOrder([f"{number}.tar" for number in range(shards)], _read, seed, buffer, world)
    return [sample.name for sample in islice(order.epoch(epoch), count)]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 40), st.integers(0, 9), st.integers(0, 3))
def test_ranks_share_every_epoch_among_them(per_rank: int, ranks: int, buffer: int, seed: int, epoch: int) -> None:
    shards = per_rank * ranks
    lists = [
        _names(shards, per_rank * PER_SHARD, buffer=buffer, seed=seed, epoch=epoch, world=World(rank, ranks))
        for rank in range(ranks)
    ]
    seen = [name for names in lists for name in names]
    assert len(set(seen)) == len(seen) == shards * PER_SHARD


def test_buffers_mix_neighbours_and_each_pass_has_another_order() -> None:
    unmixed = _names(6, 30, buffer=0, world=World())
    assert [name.split("/")[1] for name in unmixed] == [str(number) for number in range(PER_SHARD)] * 6
    mixed = _names(6, 30, buffer=8, world=World())
    assert mixed != unmixed
    assert len({name.split("/")[0] for name in mixed[:PER_SHARD]}) > 1
    names = _names(4, 3 * 20, world=World())
    passes = [names[start : start + 20] for start in (0, 20, 40)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert passes[0] != passes[1] != passes[2]


def _hash(urls: Any, world: World | None = None, **options: Any) -> str:
    return shards_hash(Shards(urls=str(urls), **({"columns": {"caption": "txt"}} | options)), world or World())


def test_the_hash_is_of_bytes_order_columns_and_length_but_not_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    make_shards(folder, 3, 2)
    known = [_hash(folder), _hash(f"{folder}/{{000,002,001}}.tar"), _hash(folder, samples_per_epoch=4)]
    known.append(_hash(folder, columns={"caption": "json:caption"}))
    shutil.copytree(folder, tmp_path / "other")
    assert _hash(tmp_path / "other") == known[0]
    shard = folder / "001.tar"
    content = shard.read_bytes()
    assert b"caption 2" in content
    shard.write_bytes(content.replace(b"caption 2", b"caption 9"))
    known.append(_hash(folder))
    assert len(set(known)) == len(known)


@dataclass(frozen=True)
class Sharing(World):
    """A rank that notes the values that it sends to the others, and receives theirs."""

    others: tuple[int, ...] = ()

    def everyones(self, value: int) -> list[int]:
        assert 0 <= value < 2**63
        object.__setattr__(self, "others", (*self.others, value))
        return list(self.others)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_share_the_reading_and_have_the_hash_of_one_process(size: int, tmp_path: Path) -> None:
    make_shards(tmp_path, 5, 1)
    others: tuple[int, ...] = ()
    for rank in range(size):
        world = Sharing(rank, size, others=others)
        found = _hash(tmp_path, world)
        others = world.others
    assert found == _hash(tmp_path)


def test_objects_in_a_store_are_identified_by_their_etags_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    etags = {f"s3://bucket/shards/{number:03}.tar": f'"etag-{number}"' for number in range(3)}
    monkeypatch.setattr(ShardFiles, "exists", lambda _self, url: url in etags)
    monkeypatch.setattr(ShardFiles, "etags", lambda _self, folder: {k: v for k, v in etags.items() if folder in k})
    before = _hash("s3://bucket/shards/{000..002}.tar")
    assert _hash("s3://bucket/shards/{000..002}.tar") == before
    etags["s3://bucket/shards/001.tar"] = '"another"'
    assert _hash("s3://bucket/shards/{000..002}.tar") != before


DECODER = SampleDecoder({"image": "jpg|png|webp"}, {"caption": "txt", "other": "json:other"}, Preparation(size=8))
GOOD: dict[str, bytes | Fault] = {"png": picture(7), "txt": b" a text\n", "json": b'{"other": "another", "n": 1}'}


def _huge_png(width: int, height: int) -> bytes:
    """A valid PNG of a few bytes that claims, or even holds, very many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress(b"\0" * (1 + width) * min(height, 64))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_sound_sample_has_its_texts_and_the_same_pixels_as_everywhere(kind: str) -> None:
    image = picture(3, kind, (20, 11))
    result = DECODER(RawSample("s/0.tar", "a", {**GOOD, "png": image}))
    assert isinstance(result, DecodedSample)
    assert result.name == "0.tar/a"
    assert result.texts == {"caption": "a text", "other": "another"}
    assert torch.equal(result.pixels["image"], Preparation(size=8).decode([image]))


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("png", None, "no image"),
        ("png", b"", "no image"),
        ("png", b"hello", "not an image"),
        ("png", picture(1, size=(64, 64))[:-40], "broken image"),
        ("png", picture(1, "PCX"), "not an image"),
        ("png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        ("png", _huge_png(60_000, 60_000), "too large"),
        ("png", _huge_png(10_000, 4_001), "too large"),
        ("png", _huge_png(2_000_000, 1), "too large"),
        ("png", Fault("not a file"), "not a file"),
        ("txt", None, "no text"),
        ("txt", b" \n", "no text"),
        ("txt", b"\xff\xfe", "unreadable text"),
        ("txt", Fault("not a file"), "not a file"),
        ("json", None, "no text"),
        ("json", b"[1]", "no text"),
        ("json", b'{"other": null}', "no text"),
        ("json", b'{"other": ["x"]}', "no text"),
        ("json", b"{", "unreadable text"),
        ("json", b"[" * 100_000, "unreadable text"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_an_unusable_member_loses_the_sample(member: str, content: bytes | Fault | None, reason: str) -> None:
    members = {name: value for name, value in (GOOD | {member: content}).items() if value is not None}
    found = [DECODER(RawSample("0.tar", "a", members, fault)) for fault in (None, Fault("unsafe name"))]
    assert all(isinstance(fault, Fault) for fault in found)
    assert list(map(str, found)) == [reason, "unsafe name"]


def test_the_first_ending_and_the_first_frame_are_taken() -> None:
    result = DECODER(RawSample("0.tar", "a", {**GOOD, "jpg": picture(200, "JPEG")}))
    assert isinstance(result, DecodedSample)
    assert torch.equal(result.pixels["image"], Preparation(size=8).decode([picture(200, "JPEG")]))
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(buffer, format="WEBP", save_all=True, append_images=frames[1:], lossless=True)
    result = DECODER(RawSample("0.tar", "a", {**GOOD, "png": buffer.getvalue()}))
    assert isinstance(result, DecodedSample)
    assert result.pixels["image"][0, :, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("given", ["", "json:", "jpg||png", ":x"])
def test_an_ill_formed_member_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="column 'caption' cannot come from"):
        SampleDecoder({}, {"caption": given}, Preparation(size=8))


@pytest.mark.parametrize("way", ["picture", "text"])
def test_samples_of_a_published_test_set_are_lost(way: str) -> None:
    known = {text_key("A text!") or b"": "coco_retrieval"} if way == "text" else {picture_key(picture(7)): "flickr30k"}
    published = TestSetKeys(texts=known) if way == "text" else TestSetKeys(pictures=known)
    decoder = SampleDecoder({"image": "png"}, {"caption": "txt"}, Preparation(size=8), published=published)
    found = [decoder(RawSample("0.tar", "a", GOOD | other)) for other in ({}, {"png": picture(8), "txt": b"another"})]
    assert str(found[0]) == f"in the test set {next(iter(known.values()))}"
    assert isinstance(found[1], DecodedSample)
