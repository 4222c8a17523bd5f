"""Exports an encoder as a folder for another library, after loading it back and comparing the vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from components.core.compute.devices import computing_on, pick_device
from components.core.settings import load_settings
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder, write_json
from components.core.tables.folders import benchmark_table
from components.encoders.adapter.encoder import Encoder, Vectors, unit_rows
from components.encoders.adapter.sidecar import METHOD_TENSORS, SIDECAR
from components.encoders.embeddings import MANIFEST
from components.encoders.parity import sample_texts
from components.encoders.under_test import EncoderUnderTest
from components.evaluation.benchmarks.project.rankings import PARAPHRASED, score_paraphrased
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext
from components.evaluation.scoring.evaluate import image_features
from components.evaluation.scoring.intervals import paired_interval
from components.evaluation.scoring.result_table import signed, span_text
from components.evaluation.scoring.results import DEFAULT, Folders
from components.registry.encoder_lookup import find_encoder
from components.registry.formats import S3_URL, ExportedVectors, Format, check_export, find_format

TOLERANCE = 1e-5
"""Largest allowed difference of a component of a unit vector."""
LEAST_COSINE = 0.9
"""Smallest allowed cosine between the vectors of a text with original and with rounded weights."""
_TEXTS = 1000
_IMAGES = 4
_DEPTH = 10
"""The depth of AO@k; the nearest depth in `evaluate.top_k` is used."""


def export_encoder(name: str, format_name: str, output: str, device: str = "auto") -> str:
    """Export the encoder `name` to the folder or S3 prefix `output`; returns a one-line summary.

    Args:
        device: of the original encoder, which the exported one is compared with.
    """
    check_export(name, format_name, output)
    target = find_format(format_name)
    place, encoder = pick_device(device), find_encoder(name, device="cpu").encoder
    if not isinstance(encoder, Encoder):
        raise InputError(f"--encoder '{name}' is not an image-text encoder: only those can be exported")
    if not output.startswith(S3_URL):
        comparison = write_checked(encoder, target, Path(output), place)
    else:
        from components.core.pictures.storage import S3

        with TemporaryDirectory() as temporary:
            comparison = write_checked(encoder, target, Path(temporary) / "exported", place)
            S3().upload(Path(temporary) / "exported", output)
    return f"{output}: {format_name}; {comparison}"


def write_checked(encoder: Encoder, target: Format, folder: Path, device: str = "cpu") -> str:
    """Write the folder atomically and load it back; returns a phrase with the difference of the vectors."""
    target.refuse(encoder)
    with atomic_folder(folder) as temporary:
        target.write(encoder, temporary)
        write_json(temporary / SIDECAR, encoder.sidecar.model_dump())
        if encoder.extra:
            save_file({name: part.contiguous() for name, part in encoder.extra.items()}, temporary / METHOD_TENSORS)
        original, exported = _vectors(encoder.to(device), target, temporary)
        compare = _compare_rounded if target.rounded else _compare_exact
        comparison = compare(original, exported, target, folder)
        if target.rounded and (loss := ao_loss(encoder, lambda texts: target.read(temporary, texts, []).texts)):
            comparison = f"{comparison}; {loss}"
        (temporary / "README.md").write_text(_readme(encoder, target, folder, comparison), encoding="utf-8")
    return comparison


def _vectors(encoder: Encoder, target: Format, folder: Path) -> tuple[ExportedVectors, ExportedVectors]:
    """Vectors of the same texts and images by the encoder and by the exported folder."""
    size, texts = encoder.sidecar.preparation.size, sample_texts(_TEXTS)
    # Of the image tower's input size: libraries resize differently, whatever the weights.
    pixels = np.random.default_rng(0).integers(0, 256, (_IMAGES, size, size, 3), dtype=np.uint8)
    try:
        exported = target.read(folder, texts, [Image.fromarray(image) for image in pixels])
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"'{encoder.sidecar.name}' cannot be loaded back by {target.name} ({reason})") from None
    channels_first = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return ExportedVectors(encoder.embed_texts(texts), encoder.embed_pixels(channels_first)), exported


def _compare_exact(original: ExportedVectors, exported: ExportedVectors, target: Format, folder: Path) -> str:
    pairs = [(original.texts, exported.texts)]
    if original.images is not None and exported.images is not None:
        pairs.append((original.images, exported.images))
    largest = max(float(np.abs(unit_rows(theirs)[0] - ours).max()) for ours, theirs in pairs)
    if not largest <= TOLERANCE:
        raise InputError(
            f"{folder}: vectors differ by {largest:.1e} after loading with {target.name}: nothing was written; report "
            "this with the encoder's encoder.json"
        )
    return f"loaded back, vectors of {_TEXTS:,} texts differ by at most {largest:.1e}"


def _compare_rounded(original: ExportedVectors, exported: ExportedVectors, target: Format, folder: Path) -> str:
    cosines = (original.texts * unit_rows(exported.texts)[0]).sum(axis=1)
    if not float(cosines.min()) >= LEAST_COSINE:
        raise InputError(
            f"{folder}: with rounded weights a text's vector has a cosine of {cosines.min():.3f} with the original, "
            f"less than {LEAST_COSINE}: nothing was written; use `--format {target.name.removesuffix('_int8')}`"
        )
    return (
        f"loaded back, vectors of {_TEXTS:,} texts keep a median cosine of {np.median(cosines):.4f} with the "
        f"originals, at least {cosines.min():.4f}"
    )


def _readme(encoder: Encoder, target: Format, folder: Path, comparison: str) -> str:
    """Python code that loads the folder, and the origin of its weights."""
    sidecar = encoder.sidecar
    origin = {
        "method": sidecar.method,
        "architecture": sidecar.model,
        "weights of the source, SHA-256": sidecar.weights_sha256,
        "git commit": sidecar.git_commit,
    }
    lines = [f"# {sidecar.name}", "", "```python", target.usage.format(folder=folder.name), "```", "", comparison, ""]
    lines += [f"- {name}: `{value}`" for name, value in origin.items() if value]
    lines += [f"- trained on: `{path}`, SHA-256 `{digest}`" for path, digest in sidecar.data_hashes.items()]
    lines += ["", *target.notes]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _TextEncoder:
    """The methods of an encoder that the benchmark calls."""

    embed: Callable[[Sequence[str]], Vectors]

    def embed_texts(self, texts: Sequence[str], batch_size: int = 0, title: str | None = None) -> Vectors:
        del batch_size, title
        return self.embed(texts)


def ao_loss(encoder: Encoder, embed: Callable[[Sequence[str]], Vectors], folders: Folders = DEFAULT) -> str | None:
    """AO@k with the encoder's texts and with those of `embed`, as a phrase; None if the project has no test data.

    Args:
        embed: texts to unit vectors `[texts, dim]`.
    """
    table = benchmark_table(folders.evaluation, QUERIES_FILE)
    if not all(path.is_file() for path in (table, folders.test_pairs, folders.embeddings / MANIFEST)):
        return None
    settings = load_settings()
    depth = min(settings.evaluate.top_k, key=lambda k: abs(k - _DEPTH))
    metric = f"{PARAPHRASED}/ao_at_{depth}"
    ids, images = image_features(encoder, folders.embeddings, folders.test_pairs, settings.embed.batch_size)
    sides = [EncoderUnderTest(encoder.sidecar.name, texts, "") for texts in (encoder, _TextEncoder(embed))]
    with computing_on(sides[0].device):
        exact, rounded = (
            score_paraphrased(ProjectContext(side, folders.evaluation, (depth,), ids, images)) for side in sides
        )
    before, after = (100 * scores.values[metric].mean() for scores in (exact, rounded))
    change = paired_interval(rounded.values[metric], exact.values[metric], *exact.groups(metric))
    return f"AO@{depth} {before:.1f} becomes {after:.1f} ({signed(change.value)} {span_text(change)})"
