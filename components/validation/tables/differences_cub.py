"""PC-CLIP's comparisons of pictures of one kind of thing, filtered as the others are."""

from __future__ import annotations

from components.core.records import DIFFERENCES_CUB
from components.validation.table import Answer, Synthesised
from components.validation.tables.differences import COMPARED

TABLE = Synthesised(
    name="differences_cub",
    table=DIFFERENCES_CUB,
    answers=(Answer("difference", "difference_cub", COMPARED),),
)
