"""cliptune in Python. `import cliptune` imports neither torch nor MLflow: functions import their packages.

An encoder is an `Encoder`, or any name that `cliptune evaluate --encoder` takes. `evaluate`, `rank` and `promote` read
the project in the current folder; the others need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder, Vectors
    from components.evaluation.scoring.benchmark import Scores
    from components.evaluation.scoring.ranking import Ranking
    from components.evaluation.scoring.results import Report
    from components.registry.decision import Decision
    from components.serving.index.image_index import ImageIndex
    from components.training.fine_tuning import tune

__all__ = ["ImageIndex", "embed_texts", "evaluate", "load_encoder", "promote", "rank", "tune"]
_HOMES = {"ImageIndex": "components.serving.index.image_index", "tune": "components.training.fine_tuning"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cliptune' has no attribute '{name}'")


def load_encoder(name: str, device: str = "auto") -> Encoder:
    """An encoder of texts and images: a folder, an MLflow run, a registry alias, or open_clip's `name:tag`.

    >>> load_encoder("models/base").sidecar.name
    'base'
    """
    from components.core.system.errors import InputError
    from components.encoders.adapter.encoder import Encoder
    from components.registry.encoder_lookup import find_encoder

    found = find_encoder(name, device=device).encoder
    if not isinstance(found, Encoder):
        raise InputError(f"'{name}' embeds only texts: name an encoder of texts and images")
    return found


def embed_texts(encoder: str | Encoder, texts: Sequence[str]) -> Vectors:
    """Unit vectors `[texts, dim]`.

    >>> embed_texts("models/base", ["a child on a couch", "a kid on a sofa"]).shape
    (2, 16)
    """
    return (load_encoder(encoder) if isinstance(encoder, str) else encoder).embed_texts(texts)


def evaluate(encoder: str | Encoder, benchmarks: Sequence[str] = ()) -> Report:
    """Metrics with intervals on the project's test pictures; by default of the usual benchmarks that have a table.

    >>> evaluate("models/base", ["retrieval"]).metrics["retrieval/t2i_recall_at_5"].ci95
    (..., ...)
    """
    from components.evaluation.scoring.ranking import chosen_benchmarks

    ((report, _),) = _scored([encoder], chosen_benchmarks(benchmarks))
    return report


def rank(encoders: Sequence[str | Encoder], benchmarks: Sequence[str] = ()) -> list[Ranking]:
    """The encoders by each metric, the best first; those that share a letter do not differ significantly.

    >>> rank(["models/base", "models/paraclip"], ["retrieval"])[0].encoders[0].groups
    'a'
    """
    from components.core.settings import load_settings
    from components.evaluation.scoring import ranking

    chosen = ranking.chosen_benchmarks(benchmarks)
    return ranking.rank(_scored(encoders, chosen), chosen, load_settings().evaluate.seed)


def promote(*, dry_run: bool = False, challenger: bool = False) -> Decision:
    """Judge the project's best candidate, and make it champion if it passes, as `cliptune promote` does.

    >>> promote(dry_run=True).outcome
    'refused'
    """
    from components.core.settings import load_settings
    from components.registry import promotion

    return promotion.promote(load_settings(), dry_run, challenger=challenger)


def _scored(encoders: Iterable[str | Encoder], benchmarks: Sequence[Any]) -> list[tuple[Report, Scores]]:
    from components.core.settings import load_settings
    from components.evaluation.scoring.ranking import score_encoders
    from components.registry.encoder_lookup import encoder_under_test, find_encoder

    found = (
        find_encoder(one) if isinstance(one, str) else encoder_under_test(one.sidecar.name, one) for one in encoders
    )
    return score_encoders(found, benchmarks, load_settings())
