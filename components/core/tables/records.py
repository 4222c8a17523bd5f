"""The columns of all tables that stages write for other stages."""

from __future__ import annotations

import pyarrow as pa

from components.core.tables.table import Table


def _schema(*required: tuple[str, pa.DataType], optional: tuple[tuple[str, pa.DataType], ...] = ()) -> pa.Schema:
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in required]
        + [pa.field(name, kind, nullable=True) for name, kind in optional]
    )


_TEXT, _BYTES, _INT, _BOOL, _REAL = pa.string(), pa.binary(), pa.int32(), pa.bool_(), pa.float64()
_PLACE = (("file", _TEXT), ("position", pa.int64()), ("size", pa.int64()))

SPLITS = ("train", "val", "test")

PAIRS = Table(
    "pairs",
    _schema(
        ("id", _TEXT), ("image_id", _TEXT), ("caption", _TEXT),
        optional=(("facts", _TEXT), ("image", _BYTES), *_PLACE, ("weight", _REAL), ("item", _TEXT)),
    ),
)  # fmt: skip
"""An image with its caption; `facts` is the JSON of a drawn scene.

`image` has the encoded bytes of pictures that are not stored elsewhere. For all others `file` is the picture's own
file (without `position`), a shard (`position` is its first byte), a Parquet file or an array of
embeddings (its row); `size` is in bytes, and null for an embedding. `components.core.pictures.stored_pictures` reads
them all.

`id` is the pair's; `image_id` is the image's (`components.core.tables.files.image_id`), the same in all of its
pairs, and every other table's `image_id` refers to it.
`weight`, only of a query log, is how often people chose the image when they searched for the caption; null counts as 1.
Where any pair has one, captions are queries, and images that were chosen for a query are never its negatives.
`item` is the product of a picture (`prepare.item`); captions and images of one item are never negatives.
"""

PARAPHRASE_QUERIES = Table(
    "paraphrase queries",
    _schema(("image_id", _TEXT), ("query", _TEXT), ("paraphrase", _TEXT), ("tier", _TEXT), ("held_out", _TEXT)),
)
"""A query and its human paraphrase; `held_out` names the part that is not in the training data: `pair` or `scene`."""

CAPTION_QUERIES = Table("caption queries", _schema(("image_id", _TEXT), ("text", _TEXT), ("register", _TEXT)))
"""A text for retrieval and the image that it describes; `register` is `plain` or `alt_text`."""

SWAPS = Table(
    "swaps",
    _schema(("image_id", _TEXT), ("true_caption", _TEXT), ("false_caption", _TEXT), ("kind", _TEXT), ("group", _TEXT)),
)
"""A true caption and a false one with two things exchanged; `kind` is `relation` or `attribute`."""

NEGATION_QUERIES = Table(
    "negation queries",
    _schema(
        ("image_id", _TEXT), ("caption", _TEXT), ("negation", _TEXT), ("paraphrase", _TEXT), ("cue", _TEXT),
        ("tier", _TEXT),
    ),
)  # fmt: skip
"""A true caption, a false one with the negation `cue`, and a true paraphrase whose hardest word is of `tier`."""

COMPARISONS = Table(
    "comparisons",
    _schema(
        ("first_id", _TEXT), ("second_id", _TEXT), ("true_difference", _TEXT), ("false_difference", _TEXT),
        ("kind", _TEXT), ("answer", _TEXT),
    ),
)  # fmt: skip
"""Two images, how they differ, and how they would if exchanged; `answer` is the one that the true sentence begins with.

`first_id` and `second_id` are image ids.
`kind` is the kind of difference, `size`, `background`, `position` or `object`; for `size` the answer is the image where
a thing is larger.
"""

HALF_TRUTHS = Table(
    "half truths",
    _schema(("image_id", _TEXT), ("truth", _TEXT), ("half_truth", _TEXT), ("full_truth", _TEXT), ("kind", _TEXT)),
)
"""A true sentence, and the same with one more statement, false or true.

`kind` is the subject of that statement, `object`, `relation`, `background` or `position`.
"""

TEXT_PAIRS = Table(
    "text pairs", _schema(("sentence", _TEXT), ("other_sentence", _TEXT), ("shared", _REAL), ("tier", _TEXT))
)
"""Two sentences, the share of their facts that they have in common, from 0 to 1, and the tier of their hardest word."""

CAPTION_RATINGS = Table("caption ratings", _schema(("image_id", _TEXT), ("caption", _TEXT), ("rating", _REAL)))
"""A person's rating of the fit of a caption and an image, from 1 to 4."""

LABELS = Table("labels", _schema(("image_id", _TEXT), ("label", _TEXT)))
"""Images with the only object that they show."""

GENERATIONS = Table(
    "generations",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("source", _TEXT), ("key", _TEXT), ("accepted", _BOOL),
        optional=(
            ("text", _TEXT), ("reason", _TEXT), ("other_id", _TEXT), ("other_source", _TEXT), ("verdict", _TEXT),
            ("written_by", _TEXT),
        ),
    ),
)  # fmt: skip
"""One answer of a language model: `id` of the pair, `source` text of the question, `key` in the generation store.

`other_id` and `other_source` are those of the second pair, where the question was about two. A task that judges
another's answers has its `verdict`, `yes` or `no`, and in `written_by` whose text it is: the `generator`'s or, after a
`no`, the `judge`'s.
"""

SKIPPED = "cliptune.skipped"
"""Key of a generations file's metadata: reason -> number of skipped inputs, as JSON."""

PARAPHRASES = Table(
    "paraphrases",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("paraphrase_1", _TEXT), ("paraphrase_2", _TEXT),
        optional=(("similarity_1", _REAL), ("similarity_2", _REAL)),
    ),
)  # fmt: skip
"""A caption x, its paraphrase x', and the paraphrase x'' of x'; similarities are MiniLM cosines to x and x'.

They are null, here and below, where `validate.measure_similarity` is off.
"""

PEOPLE_PARAPHRASES = Table(
    "people paraphrases",
    _schema(("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("paraphrase_1", _TEXT), ("paraphrase_2", _TEXT)),
)
"""A caption and two captions by other people of the same image; stage `prepare` writes it."""


def _answers(name: str, answer: str, *, judged: bool = False) -> Table:
    columns = (("id", _TEXT), ("sample", _INT), ("caption", _TEXT), (answer, _TEXT))
    judgement = (("verdict", _TEXT), ("written_by", _TEXT)) if judged else ()
    return Table(name, _schema(*columns, optional=(_SIMILARITY, *judgement)))


_SIMILARITY = ("similarity", _REAL)

REWRITES = _answers("rewrites", "rewrite")
"""A caption and its rewrite; similarities, here and below, are MiniLM cosines to the caption."""

SEMCLIP_PARAPHRASES = _answers("semclip paraphrases", "semclip_paraphrase", judged=True)
"""A caption and its paraphrase; `verdict` is the judge's verdict on the first attempt, `written_by` the author."""

NEGATIONS = _answers("negations", "negation", judged=True)
"""A caption and a sentence that is false for its picture; judged like semclip paraphrases."""

SEMCLIP_ROWS = Table(
    "semclip rows",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("published_paraphrase", _TEXT),
        ("published_negation", _TEXT),
    ),
)  # fmt: skip
"""A caption with its published paraphrase and negation; stage `prepare` writes it."""

NEGATED_TERMS = _answers("negated terms", "negated_term")
"""A caption and the same caption with one of "no", "not", "without"."""

HARD_NEGATIVES = _answers("hard negatives", "hard_negative")
"""A caption and a caption of nearly the same words that is false for its picture."""

ABSENCES = Table(
    "absences",
    _schema(
        ("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("absent_object", _TEXT), ("absence", _TEXT),
        optional=(_SIMILARITY,),
    ),
)  # fmt: skip
"""An object that the picture does not show, and the caption with the true statement of its absence."""

UNITS = Table(
    "units", _schema(("id", _TEXT), ("sample", _INT), ("caption", _TEXT), ("unit", _TEXT), ("unit_foil", _TEXT))
)
"""One part of a caption, an object or a relation, and the same part with one change that makes it false."""


def _comparisons(
    name: str, *columns: tuple[str, pa.DataType], optional: tuple[tuple[str, pa.DataType], ...] = ()
) -> Table:
    return Table(name, _schema(("id", _TEXT), ("other_id", _TEXT), ("sample", _INT), *columns, optional=optional))


_CAPTIONS = (("caption", _TEXT), ("other_caption", _TEXT))

DIFFERENCES = _comparisons("differences", *_CAPTIONS, ("difference", _TEXT), optional=(_SIMILARITY,))
"""The difference of the picture of pair `id` from that of `other_id`, in words."""

DIFFERENCES_CUB = Table("differences cub", DIFFERENCES.schema)
"""The same for pictures of one kind of object."""

DIFFERENCE_SCORES = _comparisons("difference scores", *_CAPTIONS, ("judgement", _TEXT), ("score", _REAL))
"""The score of a difference, from 0 to 1; `judgement` is the judge's answer as JSON."""

CLASS_DIFFERENCES = _comparisons(
    "class differences", ("class_name", _TEXT), ("other_class_name", _TEXT), ("difference", _TEXT)
)
"""The visual difference of two classes of objects; ids are those of their names."""

CLASS_DESCRIPTIONS = Table(
    "class descriptions", _schema(("id", _TEXT), ("sample", _INT), ("class_name", _TEXT), ("description", _TEXT))
)
"""The appearance of a class of objects."""

QUERY_PARAPHRASES = Table(
    "query paraphrases",
    _schema(("id", _TEXT), ("sample", _INT), ("query", _TEXT), ("paraphrase", _TEXT), optional=(_SIMILARITY,)),
)
"""An evaluation query of image `id` and its paraphrase; never for training."""

WRITTEN_QUERIES = Table(
    "written queries",
    _schema(
        ("image_id", _TEXT), ("caption", _TEXT), ("query", _TEXT), ("kind", _TEXT), ("model", _TEXT),
        ("prompt", _TEXT), ("judge", _TEXT), ("judge_prompt", _TEXT),
    ),
)  # fmt: skip
"""A query for a test caption that `model` wrote with task `prompt` and `judge` accepted with task `judge_prompt`.

`kind` is `paraphrase`, `negation` or `swap`. Never for training.
"""

REJECTED_QUERIES = Table(
    "rejected queries",
    _schema(("image_id", _TEXT), ("caption", _TEXT), ("kind", _TEXT), ("reason", _TEXT), optional=(("query", _TEXT),)),
)
"""An answer that is not in the test set, and why."""


def key_of(table: Table) -> str:
    """The key of a table in params.yaml, which also names its file."""
    return table.name.replace(" ", "_")


SYNTHESISED = tuple(
    key_of(table)
    for table in (
        PARAPHRASES, REWRITES, SEMCLIP_PARAPHRASES, NEGATIONS, NEGATED_TERMS, HARD_NEGATIVES, ABSENCES, UNITS,
        DIFFERENCES, DIFFERENCES_CUB, DIFFERENCE_SCORES, CLASS_DIFFERENCES, CLASS_DESCRIPTIONS, QUERY_PARAPHRASES,
    )
)  # fmt: skip
"""Keys of the tables that language models write; their checks: `components/captions/validation/rules/tables.py`."""

PUBLISHED_TEXTS = Table("published texts", _schema(("test_set", _TEXT), ("key", _BYTES)))
"""Texts of published test sets, which must not be trained on, by their keys (`components.data.leaks.keys`)."""

PUBLISHED_PICTURES = Table("published pictures", PUBLISHED_TEXTS.schema)
"""The same for pictures, by the keys of their bytes."""

CHECKED = Table(
    "checked pictures",
    _schema(
        ("place", _TEXT), ("captions", pa.list_(_TEXT)), ("lost", _INT),
        optional=(
            ("name", _TEXT), ("image_id", _TEXT), ("key", _BYTES), *_PLACE, ("split", _TEXT), ("item", _TEXT),
            ("reason", _TEXT),
        ),
    ),
)  # fmt: skip
"""A row for each picture that `prepare` has read and decoded, see `components.data.checked_pictures`.

`key` is `components.data.leaks.keys.picture_key`, `split` the published one or empty, `item` the product or
empty. With a `reason` it cannot be used, and `lost` such are meant.
"""

UNUSABLE = Table("unusable", _schema(("reason", _TEXT)))
"""Images that `prepare` skipped, each with its reason."""


def quarantine_of(table: Table) -> Table:
    """The table of rejected rows of `table`, with all reasons, separated by `;`."""
    source = next(field.name for field in table.schema if field.type == _TEXT and field.name not in ("id", "other_id"))
    required = [table.schema.field(name) for name in ("id", "sample", source)]
    texts = [field for field in table.schema if field.type == _TEXT and field not in required]
    optional = tuple((field.name, field.type) for field in texts)
    kept = tuple((field.name, field.type) for field in required)
    return Table(f"{table.name} quarantine", _schema(*kept, ("reason", _TEXT), optional=optional))
