"""Small pictures and shards for tests."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(number: int, kind: str = "PNG", size: tuple[int, int] = (6, 4)) -> bytes:
    """An image whose first pixel encodes its number."""
    return encoded(Image.new("RGB", size, (number % 251, number // 251 % 251, 90)), kind)


def write_tar(path: Path, members: Iterable[tuple[str | tarfile.TarInfo, bytes]]) -> Path:
    """A tar with these members in this order; a `TarInfo` in place of a name is used unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            if member.isreg():
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def sound(key: str, number: int) -> list[tuple[str | tarfile.TarInfo, bytes]]:
    return [(f"{key}.png", picture(number)), (f"{key}.txt", f"caption {number}".encode())]


def make_shards(folder: Path, shards: int, samples: int, broken: Iterable[int] = ()) -> str:
    """Numbered samples in numbered shards with `sizes.json`; returns the pattern of the shards.

    The samples whose numbers are in `broken` have no image that can be read.
    """
    sizes = {}
    for shard in range(shards):
        members = []
        for number in range(shard * samples, (shard + 1) * samples):
            image, text = sound(f"s{number:05d}", number)
            members += [(image[0], b"broken") if number in set(broken) else image, text]
        write_tar(folder / f"{shard:03d}.tar", members)
        sizes[f"{shard:03d}.tar"] = samples
    (folder / "sizes.json").write_text(json.dumps(sizes))
    return f"{folder}/{{000..{shards - 1:03d}}}.tar"
