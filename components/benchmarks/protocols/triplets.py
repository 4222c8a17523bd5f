"""SugarCrepe++'s two tests of triplets: captions P1 and P2 that say the same, and N that does not (section 4)."""

from __future__ import annotations

from components.benchmarks.protocols.row_pairs import row_cosine
from components.core.metrics import Features, Reals, strictly_greater


def image_triplets(images: Features, first: Features, second: Features, negative: Features) -> dict[str, Reals]:
    """ITT `itt`, and each caption's own part of it, `i_p1_n` and `i_p2_n`; a tie is a failure.

    Args:
        images, first, second, negative: unit features `[rows, dim]`.

    Returns:
        `[rows]` by name.
    """
    at_image = row_cosine(images, negative)
    parts = {
        "i_p1_n": strictly_greater(row_cosine(images, first), at_image),
        "i_p2_n": strictly_greater(row_cosine(images, second), at_image),
    }
    return parts | {"itt": parts["i_p1_n"] * parts["i_p2_n"]}


def text_triplets(first: Features, second: Features, negative: Features) -> Reals:
    """TOT `[rows]`: P1 and P2 are closer to each other than each is to N; arguments as `image_triplets`."""
    together = row_cosine(first, second)
    return strictly_greater(together, row_cosine(first, negative)) * strictly_greater(
        together, row_cosine(second, negative)
    )
