"""Speed and recall of text queries in an image index of a million vectors.

Vectors are drawn, with the geometry that image-text encoders have (Liang et al. 2022): images are in a cone around one
direction and texts in a cone around another. Two images have a cosine of about 0.5, and a text and its best
image one of about 0.35. Around the images' direction there are a few thousand clusters in a space whose spectrum falls
so fast that its effective dimension (participation ratio) is some tens. A text has the direction of a cluster, and as
much noise, half of which images have too.

Texts are searched one at a time, after each was searched once. The process only searches, and the system reports its
peak memory. Build rates hold everything: drawing, writing and LanceDB's own index. The last line is one JSON object.

    python -m benchmarks.explorer
    python -m benchmarks.explorer --rows 100000
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from components.core.compute.metrics import Features, top_k
from components.core.system.errors import run_command
from components.serving.index.building import build
from components.serving.index.image_index import ImageIndex
from components.serving.index.sources.source import ImageBlock, Opened

REPO = Path(__file__).parents[1]
DEPTH = 10
_CLUSTERS, _BLOCK = 4096, 8192
_EXACT = 100_000
_QUERIES = 500


@dataclass(frozen=True)
class World:
    """Directions that images and texts are drawn around."""

    dim: int
    cones: Features
    spectrum: Features
    centres: Features
    turned: Features

    @staticmethod
    def make(dim: int) -> World:
        """The same for the same `dim`."""
        rng = np.random.default_rng(0)
        spectrum = (1 + np.arange(dim) / 10) ** -1.0
        spectrum /= np.linalg.norm(spectrum)
        first, other = _unit(rng.normal(size=(2, dim)))
        # Of the two cones' axes, a cosine of 0.2.
        other = _unit([other - (other @ first) * first])[0]
        cones = np.stack([first, 0.2 * first + np.sqrt(1 - 0.2**2) * other])
        # Without it the first numbers of a vector would have all that differs, and bytes would hold it too well.
        turned = np.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
        return World(dim, cones, spectrum, rng.normal(size=(_CLUSTERS, dim)) * spectrum, turned)

    def images(self, first: int, count: int) -> Features:
        """Unit vectors `[count, dim]` of the images from number `first` on."""
        rng = np.random.default_rng([1, first])
        own = self.centres[rng.integers(0, _CLUSTERS, count)] + rng.normal(size=(count, self.dim)) * self.spectrum
        return _unit(self.cones[0] + own / np.sqrt(2)) @ self.turned

    def texts(self, count: int) -> Features:
        """Unit vectors `[count, dim]` of texts."""
        return np.stack([self._text(number) for number in range(count)])

    def _text(self, number: int) -> Features:
        rng = np.random.default_rng([2, number])
        shared = rng.normal(size=self.dim) * self.spectrum
        own = rng.normal(size=self.dim) / np.sqrt(self.dim)
        centre = self.centres[rng.integers(0, _CLUSTERS)]
        found: Features = _unit([self.cones[1] + centre / np.sqrt(2) + (shared + own) / 2])[0] @ self.turned
        return found


def _unit(rows: Any) -> Features:
    given = np.asarray(rows)
    return np.asarray(given / np.linalg.norm(given, axis=1, keepdims=True), np.float32)


def source(world: World, rows: int) -> Opened:
    """So many images as a source of an index."""

    def blocks() -> Iterator[ImageBlock]:
        for first in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - first)
            drawn = world.images(first, count)
            ids = [f"{number:016x}" for number in range(first, first + count)]
            table = pa.table(
                {"image_id": ids, "caption": [f"image {number}" for number in range(first, first + count)]}
            )
            yield ImageBlock("drawn", table, lambda kept, drawn=drawn: drawn[kept])

    return Opened("0" * 64, "drawn", world.dim, rows, blocks)


def measure(folder: Path, rows: int, dim: int, kind: str) -> dict[str, Any]:
    """All figures."""
    world = World.make(dim)
    queries = world.texts(_QUERIES)
    np.save(folder / "queries.npy", queries, allow_pickle=False)
    small = build(folder / "exact", source(world, min(rows, _EXACT)), "exact").rows
    exact = search(folder / "exact", folder)
    started = time.perf_counter()
    build(folder / "index", source(world, rows), kind)
    seconds = time.perf_counter() - started
    index = ImageIndex.open(folder / "index")
    whole = np.concatenate([vectors for _, vectors in index.chunks()])
    numbers = np.concatenate([np.asarray(table["image_id"]) for table, _ in index.chunks()])
    best, found = numbers[top_k(queries, whole, DEPTH)], search(folder / "index", folder)
    return {
        "rows": rows,
        "rows_exact": small,
        "dim": dim,
        "kind": kind,
        "p50_ms_100k_exact": exact["p50_ms"],
        "p95_ms_100k_exact": exact["p95_ms"],
        "p50_ms_1m": found["p50_ms"],
        "p95_ms_1m": found["p95_ms"],
        "recall_at_10_1m": _recall(found["ids"], best),
        "build_vectors_per_second": rows / seconds,
        "memory_gb_1m": found["memory_gb"],
        "disk_gb_1m": sum(path.stat().st_size for path in (folder / "index").rglob("*") if path.is_file()) / 1e9,
    }


def _recall(found: list[list[str]], best: npt.NDArray[np.object_]) -> float:
    pairs = zip(found, best.tolist(), strict=True)
    return float(np.mean([len(set(own) & set(true)) / len(true) for own, true in pairs]))


def search(index: Path, folder: Path) -> dict[str, Any]:
    """Results, time and memory of a process that only searches."""
    command = [sys.executable, "-m", "benchmarks.explorer", "--search", str(index), "--folder", str(folder)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _search(index: Path, folder: Path) -> dict[str, Any]:
    opened, queries = ImageIndex.open(index), np.load(folder / "queries.npy", allow_pickle=False)
    taken, ids = [], []
    for turn in range(2):
        for query in queries:
            started = time.perf_counter()
            found = opened.search(query[None], DEPTH)
            rows = opened.rows(found.rows[0])
            taken.append(time.perf_counter() - started)
            if turn:
                ids.append(rows["image_id"].to_pylist())
    p50, p95 = np.quantile(taken[len(queries) :], [0.5, 0.95]) * 1000
    return {"p50_ms": float(p50), "p95_ms": float(p95), "ids": ids, "memory_gb": _peak_gb()}


def _peak_gb() -> float:
    """Of this process since it began; `ru_maxrss` would count what started it as well."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kilobytes) * 1024 / 1e9


def main(
    rows: Annotated[int, typer.Option(help="Images of the index.")] = 1_000_000,
    dim: Annotated[int, typer.Option(help="Numbers of a vector.")] = 512,
    kind: Annotated[str, typer.Option(help="lance or exact.")] = "lance",
    folder: Annotated[Path | None, typer.Option(help="Where files go; a temporary folder when not given.")] = None,
    search: Annotated[Path | None, typer.Option(help="Only search this index (for the benchmark itself).")] = None,
) -> None:
    """Measure the image index.

    Example: python -m benchmarks.explorer --rows 100000
    """

    def command() -> None:
        with tempfile.TemporaryDirectory(prefix="explorer-benchmark-", dir=folder) as name:
            if search is not None and folder is not None:
                print(json.dumps(_search(search, folder)))
            else:
                print(json.dumps(measure(Path(name), rows, dim, kind)))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
