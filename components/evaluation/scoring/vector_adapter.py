"""An adapter for text vectors of a closed model: an affine map of low rank into the space of the index that is there.

Drift-Adapter (arXiv 2509.23471) fits such a map on pairs of old and new vectors. Here the pairs are captions, embedded
by the closed model and by the base's text tower, so that no picture is embedded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from components.core.compute.metrics import Reals, gold_ranks, hit_at_k
from components.core.pictures.embedding_files import EmbeddingFile, caption_column, captions_of, read_embeddings
from components.core.settings import Evaluate
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.evaluation.scoring.bootstrap import Interval, interval, paired_difference

WEIGHTS = "adapter.safetensors"
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_HELD_OUT, _FEWEST = 0.1, 100
_DEPTH = 5
USAGE = (
    "from safetensors.numpy import load_file\n"
    'adapter = load_file("{folder}/adapter.safetensors")\n'
    "vector = vector / np.linalg.norm(vector)  # of the closed model\n"
    'query = vector @ adapter["weight"] + adapter["bias"]\n'
    "query /= np.linalg.norm(query)  # in the space of the index"
)


@dataclass(frozen=True)
class AffineMap:
    """An affine map of unit vectors: `unit(x @ weight + bias)`, `weight` `[new dim, old dim]`."""

    weight: Vectors
    bias: Vectors

    def __call__(self, vectors: Vectors) -> Vectors:
        """Unit vectors `[rows, old dim]` of unit vectors `[rows, new dim]`."""
        return unit_rows(vectors @ self.weight + self.bias)[0]


@dataclass(frozen=True)
class Fitted:
    """An adapter with its measurements.

    Attributes:
        captions: number that it was fitted on.
        ridge: the chosen strength of the ridge.
        cosine: mean cosine of held-out captions with the base's vectors.
        recall: text-to-image recall@5 of the test captions by the base, by the adapter, and the paired difference;
            None without vectors of test captions.
    """

    adapter: AffineMap
    captions: int
    ridge: float
    cosine: float
    recall: tuple[Interval, Interval, Interval] | None


def read_vectors(path: Path) -> tuple[list[str], Vectors]:
    """Captions and their unit vectors by the closed model, of a `.npy` with its Parquet file, or a Parquet file."""
    file = EmbeddingFile(path, captions_of(path))
    rows, _ = file.shape()
    name = caption_column(file.metadata().schema.to_arrow_schema().names)
    if name is None:
        raise InputError(f"{file.captions} has no column of captions: call it caption")
    texts = file.columns(0, rows, lambda column: column.name == name).column(0).to_pylist()
    vectors = np.asarray(read_embeddings(path, 0, rows), np.float32)
    if not (np.isfinite(vectors).all() and vectors.any(axis=1).all()):
        raise InputError(f"{path} has rows that are zero or not finite: compute them again")
    if rows < _FEWEST:
        raise InputError(f"{path} has {rows} rows: at least {_FEWEST} are needed")
    return texts, unit_rows(vectors)[0]


def fit(new: Vectors, old: Vectors, rank: int | None = None) -> tuple[AffineMap, float, float]:
    """The adapter from `new` `[rows, new dim]` to `old` `[rows, old dim]`, its ridge, and its held-out mean cosine.

    Ridge regression of centred unit vectors; the ridge with the largest cosine on a tenth of the rows. With a `rank`
    the fitted vectors are projected on their first principal directions (reduced-rank regression).
    """
    held = max(1, int(_HELD_OUT * len(new)))
    trained = [(_ridge(new[held:], old[held:], ridge, rank), ridge) for ridge in _RIDGES]
    cosines = [float((adapter(new[:held]) * old[:held]).sum(axis=1).mean()) for adapter, _ in trained]
    best = int(np.argmax(cosines))
    return trained[best][0], trained[best][1], cosines[best]


def _ridge(new: Vectors, old: Vectors, ridge: float, rank: int | None) -> AffineMap:
    x, y = new.astype(np.float64), old.astype(np.float64)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    x, y = x - mean_x, y - mean_y
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += ridge * np.trace(gram) / len(gram)
    weight = np.linalg.solve(gram, x.T @ y)
    if rank is not None and rank < min(weight.shape):
        _, _, directions = np.linalg.svd(x @ weight, full_matrices=False)
        weight = weight @ directions[:rank].T @ directions[:rank]
    return AffineMap(weight.astype(np.float32), (mean_y - mean_x @ weight).astype(np.float32))


def adapt(
    base: Encoder,
    captions: Sequence[str],
    vectors: Vectors,
    tests: Sequence[tuple[str, int]],
    images: Vectors,
    evaluate: Evaluate,
    rank: int | None = None,
) -> Fitted:
    """Fit an adapter on the captions that test nothing, and score it on the test captions among them.

    Args:
        tests: test captions with the row of their picture among `images` `[images, dim]`.
    """
    row_of = {text: row for row, text in enumerate(captions)}
    gold = {text: picture for text, picture in tests if text in row_of}
    kept = [row for row, text in enumerate(captions) if text not in gold]
    if len(kept) < _FEWEST:
        raise InputError(f"{len(kept)} captions are not test captions: at least {_FEWEST} are needed")
    old = base.embed_texts([captions[row] for row in kept], title="embed captions")
    adapter, ridge, cosine = fit(vectors[kept], old, rank)
    recall = None
    if gold:
        pictures = np.array(list(gold.values()))
        ours = _hits(base.embed_texts(list(gold)), images, pictures)
        theirs = _hits(adapter(vectors[[row_of[text] for text in gold]]), images, pictures)
        options = evaluate.bootstrap, evaluate.seed, None, pictures
        recall = (interval(ours, *options), interval(theirs, *options), paired_difference(theirs, ours, *options))
    return Fitted(adapter, len(kept), ridge, cosine, recall)


def _hits(queries: Vectors, images: Vectors, gold: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Reals:
    return hit_at_k(gold_ranks(queries, images, gold), _DEPTH)


def save(fitted: Fitted, folder: Path, comparison: str) -> None:
    """Write the adapter and a README with its use and figures into a new folder."""
    with atomic_folder(folder) as temporary:
        save_file({"weight": fitted.adapter.weight, "bias": fitted.adapter.bias}, temporary / WEIGHTS)
        text = f"# Query adapter\n\n```python\n{USAGE.format(folder=folder.name)}\n```\n\n{comparison}\n"
        (temporary / "README.md").write_text(text, encoding="utf-8")
