"""What rounded weights cost in paraphrased retrieval, on this project's own test pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.benchmarks.bootstrap import paired_difference
from components.benchmarks.embedded import paraphrased_retrieval
from components.benchmarks.encoding.context import EmbeddedContext, EncoderUnderTest
from components.core.settings import load_settings
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.embeddings import MANIFEST
from components.evaluation.evaluate import image_features
from components.evaluation.results import DEFAULT, Folders

_DEPTH = 10
"""The depth of AO@k, or of those in `evaluate.ks` the nearest to it."""


@dataclass(frozen=True)
class _Texts:
    """The part of an encoder that the benchmark asks."""

    embed: Callable[[Sequence[str]], Vectors]

    def embed_texts(self, texts: Sequence[str], batch_size: int = 0, title: str | None = None) -> Vectors:
        del batch_size, title
        return self.embed(texts)


def ao_cost(encoder: Encoder, embed: Callable[[Sequence[str]], Vectors], folders: Folders = DEFAULT) -> str | None:
    """AO@k of the encoder, and of what `embed` gives in its place, as a phrase; None where no test data is there.

    Args:
        embed: texts to unit vectors `[texts, dim]`.
    """
    table = folders.evaluation / paraphrased_retrieval.FILE
    if not all(path.is_file() for path in (table, folders.test_pairs, folders.embeddings / MANIFEST)):
        return None
    settings = load_settings()
    depth = min(settings.evaluate.ks, key=lambda k: abs(k - _DEPTH))
    metric = f"{paraphrased_retrieval.NAME}/ao_at_{depth}"
    ids, images = image_features(encoder, folders.embeddings, folders.test_pairs, settings.embed.batch_size)
    exact, rounded = (
        paraphrased_retrieval.score(
            EmbeddedContext(
                EncoderUnderTest(encoder.sidecar.name, texts, encoder.sidecar.weights_sha256),
                folders.evaluation,
                (depth,),
                ids,
                images,
            )
        )
        for texts in (encoder, _Texts(embed))
    )
    before, after = (100 * scores.values[metric].mean() for scores in (exact, rounded))
    lost = paired_difference(
        rounded.values[metric],
        exact.values[metric],
        settings.evaluate.bootstrap,
        settings.evaluate.seed,
        exact.strata.get(metric),
        exact.pictures.get(metric),
    )
    value, low, high = (100 * one for one in (lost.value, lost.low, lost.high))
    return f"AO@{depth} {before:.1f} becomes {after:.1f} ({value:+.1f} [{low:+.1f}, {high:+.1f}])"
