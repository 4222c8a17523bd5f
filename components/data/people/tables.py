"""Rows of benchmark tables, and rows to train on, made of captions that several people wrote of one picture.

They say the same only as far as they are about the same picture: one person tells what another leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from components.core.records import NEGATION_QUERIES, PARAPHRASE_QUERIES, SWAPS
from components.data.people.negating import CUES, negated
from components.data.people.swapping import attributes_exchanged, relation_turned, roles_exchanged
from components.data.source import EvaluationTables, filled

Row = tuple[str, ...]


def evaluation_tables(captions: Mapping[str, Sequence[str]]) -> EvaluationTables:
    """Paraphrased queries, negations and swaps of test images.

    Args:
        captions: image id -> what people say of it.
    """
    tables = (
        ("paraphrase_queries", PARAPHRASE_QUERIES, _paraphrase_queries),
        ("negations", NEGATION_QUERIES, _negations),
        ("swaps", SWAPS, _swaps),
    )
    return {
        name: filled(table, [row for image, told in captions.items() for row in rows(image, told)])
        for name, table, rows in tables
    }


def _paraphrase_queries(image: str, told: Sequence[str]) -> Iterator[Row]:
    """Every caption as a query, with every other one as its paraphrase: twenty rows of five captions."""
    for query, other in permutations(told, 2):
        yield image, query, other, "all", "image"


def _negations(image: str, told: Sequence[str]) -> Iterator[Row]:
    """For each cue the first caption to which its rule applies; the caption behind it is the paraphrase."""
    for cue in CUES if len(told) > 1 else ():
        for place, caption in enumerate(told):
            if (negation := negated(caption, cue)) is not None:
                yield image, caption, negation, told[(place + 1) % len(told)], cue, "all"
                break


def _swaps(image: str, told: Sequence[str]) -> Iterator[Row]:
    """For each kind the first caption to which its rule applies, the exchange of beings before that of places."""
    relations = [(caption, roles_exchanged(caption), "roles") for caption in told]
    relations += [(caption, relation_turned(caption), "places") for caption in told]
    attributes = [(caption, *(attributes_exchanged(caption) or (None, ""))) for caption in told]
    for kind, found in (("relation", relations), ("attribute", attributes)):
        for caption, false, group in found:
            if false is not None:
                yield image, caption, false, kind, group
                break


def paraphrase_rows(ids: Sequence[str], captions: Sequence[str]) -> Iterator[tuple[str, int, str, str, str]]:
    """Rows of table `people_paraphrases` of one image's pairs: each caption, the next one, and the one behind that.

    So every caption stands once in each place. An image with fewer than three captions has no row.
    """
    count = len(captions)
    for place, pair in enumerate(ids if count > 2 else ()):
        yield pair, 0, captions[place], captions[(place + 1) % count], captions[(place + 2) % count]
