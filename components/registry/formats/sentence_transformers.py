"""A folder that `SentenceTransformer(folder)` loads: texts and images of CLIP, texts of adapted language models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.language_tower import AdaptedLayer, LanguageTower, quiet_loading, stacked_weights
from components.registry.formats import ExportedVectors, Format, huggingface


def _tower(encoder: Encoder) -> LanguageTower | None:
    tower = getattr(encoder.model, "text", None)
    return tower if isinstance(tower, LanguageTower) else None


def _refuse(encoder: Encoder) -> None:
    tower = _tower(encoder)
    if tower is None:
        huggingface.refuse(encoder)
    elif any(isinstance(layer, AdaptedLayer) for layer in tower.language.modules()):
        raise InputError(
            f"'{encoder.sidecar.name}' has adapters inside its language model, which sentence-transformers does not "
            "support: use `--format onnx`, or serve it with `cliptune serve`"
        )


def _write(encoder: Encoder, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer

    tower = _tower(encoder)
    with TemporaryDirectory() as temporary, quiet_loading():
        if tower is None:
            huggingface.FORMAT.write(encoder, Path(temporary))
            modules = [Transformer(temporary)]
        else:
            modules = _language_modules(encoder, tower, temporary)
        SentenceTransformer(modules=[*modules, Normalize()]).save_pretrained(str(folder), create_model_card=False)


def _language_modules(encoder: Encoder, tower: LanguageTower, folder: str) -> list[Any]:
    """The language model, the mean over its tokens, and the two layers of the projection."""
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
    from torch import nn

    tower.language.save_pretrained(folder, state_dict=stacked_weights(tower))
    encoder.tokenizer.save(Path(folder))
    # A special token in a text is read as plain letters.
    model = Transformer(
        folder, max_seq_length=encoder.tokenizer.context_length, processor_kwargs={"split_special_tokens": True}
    )
    first, _, last = tower.projection
    dense = []
    for layer, activation in ((first, nn.GELU()), (last, nn.Identity())):
        module = Dense(layer.in_features, layer.out_features, activation_function=activation)
        module.linear.load_state_dict(layer.state_dict())
        dense.append(module)
    return [model, Pooling(first.in_features, pooling_mode="mean"), *dense]


def _read(folder: Path, texts: Sequence[str], images: Sequence[Image.Image]) -> ExportedVectors:
    from sentence_transformers import SentenceTransformer

    with quiet_loading():
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    has_images = model.supports("image")
    return ExportedVectors(model.encode(list(texts)), model.encode(list(images)) if has_images else None)


FORMAT = Format(
    name="sentence_transformers",
    refuse=_refuse,
    write=_write,
    read=_read,
    usage=(
        "from sentence_transformers import SentenceTransformer\n"
        'model = SentenceTransformer("{folder}")\n'
        'vectors = model.encode(["a child on a couch"])'
    ),
    notes=huggingface.FORMAT.notes,
)
