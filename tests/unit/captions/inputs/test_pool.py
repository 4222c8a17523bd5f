"""A pool gives back by number what was put into it, whatever the blocks it is kept in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.inputs import pool
from components.captions.inputs.pool import pooled
from components.captions.request import InputRow, PromptPicture

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
PICTURES = st.none() | st.builds(PromptPicture, st.binary(min_size=1, max_size=4), st.sampled_from(["image/png"]))


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS, PICTURES), max_size=9), block=st.integers(1, 4), order=st.randoms())
def test_sources_come_back_in_any_order(
    rows: list[tuple[str, str, PromptPicture | None]], block: int, order: object
) -> None:
    sources = [
        InputRow(f"p{number}{name}", 0, {"caption": text}, pictures=(picture,) if picture else ())
        for number, (name, text, picture) in enumerate(rows)
    ]
    places = list(range(len(sources)))
    order.shuffle(places)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_BLOCK", block)
        with pooled(iter(sources)) as kept:
            assert len(kept) == len(sources)
            assert [kept[place] for place in places] == [sources[place] for place in places]
