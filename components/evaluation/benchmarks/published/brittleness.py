"""Does a query find the same pictures with another case or other punctuation at its end? (arXiv 2511.04247)

The definitions of instability and brittleness by Tran and Rossetto (MMM 2026) and their list of edits could not be
found, and their queries (TRECVID) and pictures (V3C1) are not free. So edits and metrics are this project's, values are
not the paper's, and higher is steadier. Each edited query is compared with the original one:

- `cosine` of the features (no chance level);
- `ao_at_k`, average overlap (ParaCLIP, appendix B, equation 1);
- `overlap_at_k`, the shared part of two lists, by chance k of the gallery's size;
- `rank_correlation`, Spearman's over the gallery, by chance 0.

An edit that leaves a query unchanged does not count. Intervals resample queries. Where the tokenizer lower-cases, as
CLIP's does, edits of case score 1. `brittleness_coco` has the first caption of each image of COCO val2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from components.core.compute.metrics import Features, average_overlap, rank_correlation, shared_of_top, top_k
from components.core.pictures.folder import picture_names
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.readers.captions import VAL2017
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.choices import row_cosine
from components.evaluation.scoring.published_context import PublishedContext

NAME, COCO, QUERIES, IMAGES = "brittleness", "brittleness_coco", "queries.txt", "images"


def edits(query: str) -> dict[str, str]:
    """Name of each edit -> the edited query; some may equal the query.

    >>> list(edits("A dog.").values())
    ['a dog.', 'A DOG.', 'A dog.', 'A dog', 'A dog.', 'A dog!', 'A dog?']
    """
    bare = query.rstrip(" .,;:!?") or query
    cases = {"lower": query.lower(), "upper": query.upper(), "capital": query[:1].upper() + query[1:]}
    return cases | {"no_end": bare, "full_stop": f"{bare}.", "exclamation": f"{bare}!", "question": f"{bare}?"}


def score_own(context: PublishedContext) -> Scores:
    """The lines of `queries.txt` before all pictures in `images/`."""
    path, folder = context.folder / QUERIES, context.folder / IMAGES
    try:
        queries = list(dict.fromkeys(filter(None, map(str.strip, path.read_text("utf-8-sig").splitlines()))))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged ({error}): save it as UTF-8") from None
    names = sorted(picture_names(folder))
    if not queries or not names:
        raise InputError(f"{context.folder} needs a query in {QUERIES} and a picture in {IMAGES}/: add them")
    return _scores(NAME, context, queries, context.image_files(IMAGES, names))


def score_coco(context: PublishedContext) -> Scores:
    """The first caption of each image of val2017 before all of them."""
    captioned = VAL2017.read(context)
    first = np.unique(captioned.owners, return_index=True)[1]
    queries = list(dict.fromkeys(captioned.captions[row] for row in first))
    return _scores(COCO, context, queries, context.image_files(VAL2017.pictures, captioned.images))


def _scores(name: str, context: PublishedContext, queries: Sequence[str], images: Features) -> Scores:
    made = [(n, kind, text) for n, query in enumerate(queries) for kind, text in edits(query).items() if text != query]
    owners = np.array([number for number, _, _ in made], dtype=np.int64)
    plain, edited = context.texts(queries)[owners], context.texts([text for _, _, text in made])
    columns = {
        "cosine": row_cosine(plain, edited).astype(np.float64),
        "rank_correlation": rank_correlation(plain, edited, images),
    }
    depths = [k for k in context.ks if k <= len(images)]
    first, second = (top_k(features, images, max(depths, default=1)) for features in (plain, edited))
    for k in depths:
        columns |= {f"ao_at_{k}": average_overlap(first, second, k), f"overlap_at_{k}": shared_of_top(first, second, k)}
    return grouped(name, columns, owners, {"edit": [kind for _, kind, _ in made]})


_OF_EDITS = partial(
    Benchmark[PublishedContext],
    version=1,
    protocol="this project's: seven edits of case and punctuation; plain and edited query on one gallery",
    citation="On the brittleness of CLIP text encoders (arXiv 2511.04247)",
    metrics=metrics("the earlier picture by name first", "cosine", "rank_correlation", "ao_at_k", "overlap_at_k"),
)
_OWN = (
    RequiredFile(QUERIES, "a query in each line", "any size", "yours", "your search log"),
    RequiredFile(IMAGES, "the pictures to search, in any folders", "any size", "yours", "your index"),
)
BENCHMARKS = (
    _OF_EDITS(name=NAME, folder=NAME, needs=_OWN, score=score_own),
    _OF_EDITS(name=COCO, folder=VAL2017.folder, needs=tuple(VAL2017.files), score=score_coco),
)
