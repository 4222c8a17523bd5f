"""Exports an encoder as an open_clip or Hugging Face folder, loads it back and compares before it is kept."""

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
from components.registry.formats import find_format
from components.registry.formats.format import Features, Format

TOLERANCE = 1e-5
_TEXTS = (
    "a child on a couch",
    "Two cats, one asleep -- the other isn't.",
    "IMG_0042.jpg 3 crème brûlées @ the café",
    "a photo of " + "a very, very long table " * 40,
)
_IMAGES = 4


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
        apart = write_checked(encoder, form, Path(output))
    else:
        from components.core.storage import S3
        from components.core.storage.url import upload_pairs

        with TemporaryDirectory() as temporary:
            apart = write_checked(encoder, form, Path(temporary) / "exported")
            store = S3()
            for path, url in upload_pairs(Path(temporary) / "exported", output):
                store.put(path, url)
    return f"{output}: {format_name}; loaded back, features differ by {apart:.1e} at most"


def write_checked(encoder: Encoder, form: Format, folder: Path) -> float:
    """Write the folder, whole or not at all, and load it back; returns the largest difference of a feature.

    Raises:
        InputError: the format cannot hold this encoder, or what was loaded back gives other features.
    """
    form.refuse(encoder)
    with atomic_folder(folder) as temporary:
        form.write(encoder, temporary)
        write_json(temporary / SIDECAR, encoder.sidecar.model_dump())
        if encoder.extra:
            save_file({name: part.contiguous() for name, part in encoder.extra.items()}, temporary / METHOD_TENSORS)
        (temporary / "README.md").write_text(_readme(encoder, form, folder), encoding="utf-8")
        apart = _difference(encoder, form, temporary)
        if not apart <= TOLERANCE:
            raise InputError(
                f"{folder}: features differ by {apart:.1e} when {form.name} loads them back: nothing was written; "
                "report this with the encoder's encoder.json"
            )
    return apart


def _difference(encoder: Encoder, form: Format, folder: Path) -> float:
    size = encoder.sidecar.image_size
    # Of the size that the image tower sees: libraries differ in how they resize, which no weights can fix.
    pixels = np.random.default_rng(0).integers(0, 256, (_IMAGES, size, size, 3), dtype=np.uint8)
    try:
        found = form.read(folder, _TEXTS, [Image.fromarray(image) for image in pixels])
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"'{encoder.sidecar.name}' cannot be loaded back by {form.name} ({reason})") from None
    seen = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    own = Features(encoder.embed_texts(_TEXTS), encoder.embed_pixels(seen))
    return max(
        float(np.abs(unit_rows(theirs)[0] - ours).max())
        for theirs, ours in ((found.texts, own.texts), (found.images, own.images))
    )


def _readme(encoder: Encoder, form: Format, folder: Path) -> str:
    """How to load the folder, and where its weights come from."""
    sidecar = encoder.sidecar
    origin = {
        "method": sidecar.method,
        "architecture": sidecar.model,
        "weights of the source, SHA-256": sidecar.weights_sha256,
        "git commit": sidecar.git_commit,
    }
    lines = [f"# {sidecar.name}", "", "```python", form.usage.format(folder=folder.name), "```", ""]
    lines += [f"- {name}: `{value}`" for name, value in origin.items() if value]
    lines += [f"- trained on: `{path}`, SHA-256 `{digest}`" for path, digest in sidecar.data_hashes.items()]
    lines += ["", *form.notes]
    return "\n".join(lines) + "\n"
