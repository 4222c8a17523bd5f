"""The command `cliptune adapter`: text vectors of a closed model in front of the index that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from components.cli.tables import Device, encoder_names, new_file, say
from components.core.system.errors import InputError
from components.core.system.project import from_root, in_project

if TYPE_CHECKING:
    from components.evaluation.scoring.bootstrap import Interval


@in_project
def adapter(
    vectors: Annotated[
        Path, typer.Argument(help="Vectors of captions by the new model: NAME.npy with NAME.parquet, or NAME.parquet.")
    ],
    output: Annotated[Path, typer.Option(help="A new folder for the adapter.")],
    encoder: Annotated[str, typer.Option(help="The encoder that made the index's vectors.")] = "base",
    rank: Annotated[int | None, typer.Option(min=1, help="Rank of the map; by default it is not limited.")] = None,
    device: Device = "auto",
) -> None:
    """Fit a map from a closed model's text vectors into the space of the present index, and measure its loss.

    Have the model embed a few thousand captions, and the test captions with them (`data/evaluation`): these are left
    out of the fit, and recall is measured on them. For a model whose weights you have, train method `query_adapter`.

    Examples: cliptune adapter data/closed.npy --output adapters/closed;
    cliptune adapter data/closed.parquet --output adapters/closed --rank 64
    """
    (name,) = encoder_names([encoder])
    written = new_file(output)
    from components.core.settings import load_settings
    from components.core.tables.folders import benchmark_table
    from components.core.tables.records import CAPTION_QUERIES
    from components.encoders.adapter.encoder import Encoder
    from components.evaluation.benchmarks.project.rankings import CAPTIONS_FILE
    from components.evaluation.scoring.evaluate import image_features
    from components.evaluation.scoring.results import DEFAULT
    from components.evaluation.scoring.vector_adapter import adapt, read_vectors, save
    from components.registry.encoder_lookup import find_encoder

    settings, (captions, made) = load_settings(), read_vectors(from_root(vectors))
    base = find_encoder(name, device=device).encoder
    if not isinstance(base, Encoder):
        raise InputError(f"--encoder '{encoder}' is not an image-text encoder")
    ids, images = image_features(base, DEFAULT.embeddings, DEFAULT.test_pairs, settings.embed.batch_size)
    place = {image: row for row, image in enumerate(ids)}
    queries = CAPTION_QUERIES.read(benchmark_table(DEFAULT.evaluation, CAPTIONS_FILE))
    pairs = zip(queries["text"].to_pylist(), queries["image_id"].to_pylist(), strict=True)
    tests = [(text, place[image]) for text, image in pairs]
    found = adapt(base, captions, made, tests, images, settings.evaluate, rank)
    lines = [f"fitted on {found.captions:,} captions, mean cosine of held-out ones with the base's {found.cosine:.3f}"]
    if found.recall is None:
        lines.append("no test caption has a vector: recall was not measured")
    else:
        ours, theirs, less = map(_shown, found.recall)
        lines.append(f"text-to-image recall@5 on test captions: base {ours}, adapter {theirs}, difference {less}")
    save(found, written, "\n".join(lines))
    say("\n".join([*lines, f"wrote {output}"]))


def _shown(value: Interval) -> str:
    return f"{100 * value.value:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"
