"""Exports an encoder as a folder that another library reads, loads it back and compares before it is kept."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from components.core.errors import InputError
from components.core.files import atomic_folder, write_json
from components.encoders.adapter.encoder import Encoder, unit_rows
from components.encoders.adapter.sidecar import METHOD_TENSORS, SIDECAR
from components.registry.encoder_lookup import find_encoder
from components.registry.export_check import S3_URL, check_export
from components.registry.export_cost import ao_cost
from components.registry.formats import find_format
from components.registry.formats.format import Features, Format

TOLERANCE = 1e-5
"""By which a number of a unit vector may differ; by how much rounded weights may turn one is `LEAST_COSINE`."""
LEAST_COSINE = 0.9
_TEXTS = 1000
_IMAGES = 4
_AWKWARD = (
    "a child on a couch",
    "Two cats, one asleep -- the other isn't.",
    "IMG_0042.jpg 3 crème brûlées @ the café",
    "a photo of " + "a very, very long table " * 40,
)


def export_encoder(name: str, format_name: str, output: str) -> str:
    """Export the encoder behind `name` to the folder or S3 prefix `output`; returns a line that says what was done.

    Raises:
        InputError: the name or format is unknown, the format cannot hold this encoder, `output` is there already or
            cannot be written, or the exported encoder, loaded back, gives other features.
    """
    check_export(name, format_name, output)
    form = find_format(format_name)
    encoder = find_encoder(name).encoder
    if not isinstance(encoder, Encoder):
        raise InputError(f"--encoder '{name}' is no image-text encoder: only those are exported")
    if not output.startswith(S3_URL):
        told = write_checked(encoder, form, Path(output))
    else:
        from components.core.storage import S3
        from components.core.storage.url import upload_pairs

        with TemporaryDirectory() as temporary:
            told = write_checked(encoder, form, Path(temporary) / "exported")
            store = S3()
            for path, url in upload_pairs(Path(temporary) / "exported", output):
                store.put(path, url)
    return f"{output}: {format_name}; {told}"


def write_checked(encoder: Encoder, form: Format, folder: Path) -> str:
    """Write the folder, whole or not at all, and load it back; returns how the features differ, as a phrase.

    Raises:
        InputError: the format cannot hold this encoder, or what was loaded back gives other features.
    """
    form.refuse(encoder)
    with atomic_folder(folder) as temporary:
        form.write(encoder, temporary)
        write_json(temporary / SIDECAR, encoder.sidecar.model_dump())
        if encoder.extra:
            save_file({name: part.contiguous() for name, part in encoder.extra.items()}, temporary / METHOD_TENSORS)
        own, found = _both(encoder, form, temporary)
        told = _rounded(own, found, form, folder) if form.rounded else _same(own, found, form, folder)
        if form.rounded and (cost := ao_cost(encoder, lambda texts: form.read(temporary, texts, []).texts)):
            told = f"{told}; {cost}"
        (temporary / "README.md").write_text(_readme(encoder, form, folder, told), encoding="utf-8")
    return told


def sample_texts(count: int) -> list[str]:
    """`count` texts for comparing features: four that libraries have read differently, the rest of made-up words."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    made = list(_AWKWARD)
    while len(made) < count:
        words = ["".join(random.choice(letters, random.integers(1, 10))) for _ in range(random.integers(1, 13))]
        made.append(" ".join(words))
    return made[:count]


def _both(encoder: Encoder, form: Format, folder: Path) -> tuple[Features, Features]:
    """Features of the same texts and images by the encoder and by what was written."""
    size, texts = encoder.sidecar.image_size, sample_texts(_TEXTS)
    # Of the size that the image tower sees: libraries differ in how they resize, which no weights can fix.
    pixels = np.random.default_rng(0).integers(0, 256, (_IMAGES, size, size, 3), dtype=np.uint8)
    try:
        found = form.read(folder, texts, [Image.fromarray(image) for image in pixels])
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"'{encoder.sidecar.name}' cannot be loaded back by {form.name} ({reason})") from None
    seen = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return Features(encoder.embed_texts(texts), encoder.embed_pixels(seen)), found


def _same(own: Features, found: Features, form: Format, folder: Path) -> str:
    pairs = [(own.texts, found.texts)]
    if own.images is not None and found.images is not None:
        pairs.append((own.images, found.images))
    apart = max(float(np.abs(unit_rows(theirs)[0] - ours).max()) for ours, theirs in pairs)
    if not apart <= TOLERANCE:
        raise InputError(
            f"{folder}: features differ by {apart:.1e} when {form.name} loads them back: nothing was written; "
            "report this with the encoder's encoder.json"
        )
    return f"loaded back, features of {_TEXTS:,} texts differ by {apart:.1e} at most"


def _rounded(own: Features, found: Features, form: Format, folder: Path) -> str:
    cosines = (own.texts * unit_rows(found.texts)[0]).sum(axis=1)
    if not float(cosines.min()) >= LEAST_COSINE:
        raise InputError(
            f"{folder}: rounded weights turn a text's vector to a cosine of {cosines.min():.3f}, which {form.name} "
            f"may not below {LEAST_COSINE}: nothing was written; use `--format {form.name.removesuffix('_int8')}`"
        )
    return (
        f"loaded back, {_TEXTS:,} texts keep a cosine of {np.median(cosines):.4f} to what they were, "
        f"{cosines.min():.4f} at least"
    )


def _readme(encoder: Encoder, form: Format, folder: Path, told: str) -> str:
    """How to load the folder, and where its weights come from."""
    sidecar = encoder.sidecar
    origin = {
        "method": sidecar.method,
        "architecture": sidecar.model,
        "weights of the source, SHA-256": sidecar.weights_sha256,
        "git commit": sidecar.git_commit,
    }
    lines = [f"# {sidecar.name}", "", "```python", form.usage.format(folder=folder.name), "```", "", told, ""]
    lines += [f"- {name}: `{value}`" for name, value in origin.items() if value]
    lines += [f"- trained on: `{path}`, SHA-256 `{digest}`" for path, digest in sidecar.data_hashes.items()]
    lines += ["", *form.notes]
    return "\n".join(lines) + "\n"
