"""Bytes to texts and pixels; every reason why not has its name."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
import torch
from PIL import Image

from components.core.pictures.shard_reader import Fault, RawSample
from components.core.system.errors import InputError
from components.data.leaks.keys import picture_key, text_key
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.images import Preparation
from components.training.rows.shards import DecodedSample, SampleDecoder
from tests.support.shard_making import picture

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


def test_of_several_images_the_first_ending_is_taken() -> None:
    result = DECODER(RawSample("0.tar", "a", {**GOOD, "jpg": picture(200, "JPEG")}))
    assert isinstance(result, DecodedSample)
    assert torch.equal(result.pixels["image"], Preparation(size=8).decode([picture(200, "JPEG")]))


def test_animations_give_their_first_frame() -> None:
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
