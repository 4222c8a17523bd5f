"""Damaged files of every kind end in one line: no hang over ten seconds, no more than 1 GB, no traceback.

A process with a limit on memory changes small valid files at random and has the product read them:
`python -m tests.faults.test_fuzz tar 60 7 /tmp/folder` reads damaged shards for a minute; the third is the seed.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from components.captions.prompting.tasks import find_task
from components.cli.edited_params import overlaid
from components.cli.own_data.survey import survey
from components.core.pictures.rgb import upright_jpeg
from components.core.system.discovery import names_in
from components.core.system.errors import InputError
from components.core.system.profiles import profile_files
from components.data.checked_pictures import check_picture
from tests.support.params import REPO

SECONDS = float(os.environ.get("CLIPTUNE_FUZZ_S", "600"))
"""Of all kinds together."""
MEMORY, HANG_S = 1 << 30, 10
ROWS = 14
_WORDS = (
    b"\x00", b"\xff\xfe", b'"', b"'", b",", b"\t", b"\r", b"\n", b"{", b"]", b"[" * 200, b"null", b"NaN", b"1e999",
    b"-1", b"\xef\xbb\xbf", b"../", b"\xed\xa0\x80", b"9" * 30, b"x" * 70_000, b"<think>", b"&a [*a]", b"!!python/x",
)  # fmt: skip


def picture(number: int, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((40, 40), number + 5).convert("RGB").save(stream, kind, **options)
    return stream.getvalue()


def _tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(ROWS):
            members = {"jpg": picture(number, "JPEG"), "txt": b"a dog on a sofa", "json": b'{"split": "train"}'}
            for ending, content in members.items():
                member = tarfile.TarInfo(f"{'k' * (number * 20)}{number}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _parquet(column: str, values: list[object]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({column: values, "caption": [f"dog number {n}" for n in range(ROWS)]}), stream)
    return stream.getvalue()


def _files() -> dict[str, dict[str, bytes]]:
    """Kind -> name of a file that is changed -> its valid content."""
    names = [f"{number}.png" for number in range(ROWS)]
    rows = [{"image": name, "caption": f'a "red" dog, number {name}', "split": "train"} for name in names]
    kinds = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")
    return {
        "tar": {"00000.tar": _tar()},
        "list": {
            "captions.tsv": "\n".join(["image\tcaption", *(f"{n}\ta dog, {n}" for n in names)]).encode(),
            "captions.csv": "\n".join(["image,caption", *(f'{n},"a dog, {n}"' for n in names)]).encode(),
            "captions.jsonl": "\n".join(map(json.dumps, rows)).encode(),
        },
        "parquet": {
            "captions.parquet": _parquet("image", list(names)),
            "train-00000-of-00001.parquet": _parquet("image", [{"bytes": picture(n)} for n in range(ROWS)]),
        },
        "picture": {kind: picture(3, kind) for kind in kinds}
        | {"progressive": picture(3, "JPEG", progressive=True), "tagged": picture(3, "JPEG", exif=_exif())},
        "yaml": {path.name: path.read_bytes() for path in profile_files(REPO / "infra/profiles").values()},
        "answers": {"text": b"1. A dog sits on a couch.\n<think>yes</think> Score: 4\n{\"caption\": \"a dog\"}"},
    }  # fmt: skip


def _exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes()


def _read_folder(folder: Path, name: str, content: bytes) -> None:
    if not name.endswith((".tar", "00001.parquet")):
        for number in range(ROWS):
            (folder / f"{number}.png").write_bytes(picture(number))
    (folder / name).write_bytes(content)
    survey(folder)


def _read_picture(_folder: Path, _name: str, content: bytes) -> None:
    check_picture(content, "picture")
    # Of what is accepted, requests are made.
    upright_jpeg(content, 1024)


def _read_profile(folder: Path, _name: str, content: bytes) -> None:
    (folder / "fuzzed.yaml").write_bytes(content)
    overlaid("fuzzed", REPO / "params.yaml", folder)


def _read_answer(_folder: Path, _name: str, content: bytes) -> None:
    text = content.decode("utf-8", errors="surrogateescape")
    for name in names_in("components.captions.prompting.tasks"):
        found = find_task(name).parse(text)
        assert found is None or isinstance(found, str), name


READERS: Mapping[str, Callable[[Path, str, bytes], None]] = {
    "tar": _read_folder,
    "list": _read_folder,
    "parquet": _read_folder,
    "picture": _read_picture,
    "yaml": _read_profile,
    "answers": _read_answer,
}


def changed(content: bytes, draw: random.Random) -> bytes:
    """The content with one to eight changes: bits, words, numbers, cuts, parts that repeat or are exchanged."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 2, 4, 8, 64, 512)))
        kind = draw.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[at:end] = draw.randbytes(end - at)
        elif kind == 2:
            data[at:at] = draw.choice(_WORDS)
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end] * draw.choice((1, 2, 50))
        elif kind == 5:
            data[at:end] = draw.choice((b"\xff", b"\x00", b"\x7f", b"7")) * (end - at)
        else:
            del data[at:]
    return bytes(data)


def main(kind: str, seconds: float, seed: int, folder: Path) -> int:
    """Read changed files until the time is over; returns how many, and raises what is no `InputError`."""
    draw, files, read = random.Random(seed), list(_files()[kind].items()), READERS[kind]
    name, content = files[0]
    # The libraries are loaded before the limit is set.
    for name, content in files:
        with suppress(InputError):
            shutil.rmtree(folder / "work", ignore_errors=True)
            (folder / "work").mkdir(parents=True)
            read(folder / "work", name, content)
    now = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        name, content = draw.choice(files)
        shutil.rmtree(folder / "work")
        (folder / "work").mkdir()
        given = changed(content, draw)
        (folder / "last").write_bytes(given)
        # A hang ends the process with a traceback, also inside a library.
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            read(folder / "work", name, given)
        except InputError:
            pass
        except BaseException:
            traceback.print_exc()
            print(f"{kind}: {name}, seed {seed}, input {count}", file=sys.stderr)
            return -1
        finally:
            faulthandler.cancel_dump_traceback_later()
        count += 1
    return count


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_are_one_line(kind: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("CLIPTUNE_FUZZ_SEED") or random.SystemRandom().randrange(1 << 32))
    given = [kind, str(SECONDS / len(READERS)), str(seed), str(tmp_path)]
    command = [sys.executable, "-m", "tests.faults.test_fuzz", *given]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    last = tmp_path / "last"
    given_last = last.read_bytes()[:3000] if last.exists() else b""
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}\nlast input: {given_last!r}"
    assert "read 0 files" not in done.stdout


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.enable()
    read_files = main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print(f"read {read_files} files")
    sys.exit(read_files < 1)
