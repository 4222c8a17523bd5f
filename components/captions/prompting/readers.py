"""Readers of captions and pairs of captions, of an earlier task's answers, of classes, and of queries.

Classes and queries are in tables of stage `prepare`, or in `.tsv` files of `cliptune evaluate` with a row of texts per
line.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.captions.prompting.pictures import SHOWN, picture_row, pictures_of, to_picture
from components.captions.prompting.request import InputRow, Inputs, disarm
from components.core.pictures.folder import pictures_in
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.system.errors import InputError
from components.core.tables.files import content_hash
from components.core.tables.records import CAPTION_QUERIES, GENERATIONS, LABELS, PAIRS
from components.core.text.languages import word_count

Accepts = Callable[[Inputs], str | None]
"""The reason to skip inputs, disarmed (see `components.captions.prompting.request`), or None to accept them.

A reason quotes none of their words, so that equal reasons can be counted.
"""


@dataclass(frozen=True)
class Ask:
    """Which rows of its table a task wants.

    Attributes:
        seed: draws the pairs of a task about two captions, and an image's caption.
        one_per_image: use one caption per image, drawn by `seed`; `limit` then counts images.
        skipped: number of skipped rows by reason; counted while the sources are read.
    """

    limit: int
    seed: int = 0
    pairs: int | None = None
    one_per_image: bool = False
    pictures: bool = False
    skipped: Counter[str] = field(default_factory=Counter, compare=False)
    images: Path = Path("data/pairs/train.parquet")


Reader = Callable[[Path, Accepts, Ask], Iterable[InputRow]]
"""Reads a task's table lazily and in one fixed order; memory does not grow with the rows.

A damaged row raises `InputError` once it is reached.
"""


def caption_words(fewest: int, most: int) -> Accepts:
    """Accepts captions of so many words; single punctuation, as in Flickr8k's "a dog .", is not a word."""

    def accepts(inputs: Inputs) -> str | None:
        spaced = " ".join(word for word in inputs["caption"].split() if word.strip(".,;:!?'\"()[]\u2026"))
        words = word_count(spaced)
        if words > most:
            return f"caption has more than {most} words"
        return f"caption has fewer than {fewest} words" if words < fewest else None

    return accepts


short_captions = caption_words(2, 15)
"""Accepts the same captions as ParaCLIP's released code; no other paper filters by length."""


def anything(_inputs: Inputs) -> None:
    """Accepts all inputs."""


def read_captions(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The first captions of a `PAIRS` table that the task accepts, as input `caption`.

    With `one_per_image` it is one accepted caption, drawn by the seed, of each of the first images that have any. The
    first are a random sample where `prepare` shuffles images (`components.data.listed_images`); sources that stream
    keep the order of their files.
    """
    captions = _captions(path, pictures=ask.pictures)
    if ask.one_per_image:
        return islice(_one_per_image(captions, accepts, ask), ask.limit)
    return islice(accepted((source for _, source in captions), accepts, ask.skipped), ask.limit)


def read_caption_pairs(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """Two of the captions of `read_captions` at a time, see `paired`: `caption` and `other_caption`.

    PC-CLIP (section 4.1) compares all ordered pairs of 1,000 images. Each has one caption here, so no image is compared
    with itself. The captions are kept in memory.
    """
    if ask.pictures:
        return _with_pictures(read_caption_pairs, path, accepts, replace(ask, images=path))
    return paired(list(read_captions(path, accepts, replace(ask, one_per_image=True))), ask.pairs, ask.seed)


def read_pictures(path: Path, _accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The first pictures of a folder and its subfolders by name; raises as `pictures_in`."""
    return islice((picture_row(path, name) for name in pictures_in(path).names), ask.limit)


def read_answers(name: str, **about: str) -> Reader:
    """A reader of the accepted answers that a `GENERATIONS` table has for its first captions, as input `name`.

    `about` gives further inputs: their names and the columns of `GENERATIONS` with their texts. The rows of a caption
    are adjacent in the table.
    """

    def read(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
        if not ask.pictures:
            return accepted(_answers(path, {name: "text", **about}, ask), accepts, ask.skipped)
        return _with_pictures(read, path, accepts, ask)

    return read


def accepted(sources: Iterable[InputRow], accepts: Accepts, skipped: Counter[str]) -> Iterator[InputRow]:
    """The sources whose inputs the task accepts; `skipped` counts the reasons of the others.

    The task sees the inputs as a prompt quotes them: disarmed.
    """
    for source in sources:
        inputs = {name: disarm(text) for name, text in source.inputs.items()}
        reason = accepts(inputs)
        if reason is None and not all(inputs.values()):
            reason = "there is no text to ask about"
        if reason is None:
            yield source
        else:
            skipped[reason] += 1


def _one_per_image(captions: Iterable[tuple[str, InputRow]], accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """One accepted caption per image, whose captions are adjacent; a later repetition of an image is skipped."""
    seen: set[str] = set()
    for image, group in groupby(captions, key=itemgetter(0)):
        usable = list(accepted((source for _, source in group), accepts, ask.skipped))
        if usable and image not in seen:
            seen.add(image)
            yield min(usable, key=lambda source: content_hash(str(ask.seed), source.id))


def _captions(path: Path, *, pictures: bool) -> Iterator[tuple[str, InputRow]]:
    """Every caption with its image's id."""
    columns = ["id", "caption", *(PICTURE if pictures else ["image_id"])]
    with Pictures() as files:
        for block in PAIRS.blocks(path, columns, rows=256 if pictures else 10_000):
            for row in block.to_pylist():
                shown = (to_picture(files.one(row), path, row["id"]),) if pictures else ()
                inputs = {"caption": row["caption"]} | ({SHOWN: "1"} if pictures else {})
                yield row["image_id"], InputRow(row["id"], 0, inputs, pictures=shown)


def _answers(path: Path, inputs: dict[str, str], ask: Ask) -> Iterator[InputRow]:
    columns = ["id", "sample", "accepted", "other_id", *inputs.values()]
    rows = (row for block in GENERATIONS.blocks(path, columns) for row in block.to_pylist())
    for _, group in islice(groupby(rows, key=itemgetter("id")), ask.limit):
        for row in group:
            if row["accepted"]:
                texts = {name: row[column] for name, column in inputs.items()}
                yield InputRow(row["id"], row["sample"], texts, row["other_id"])
            else:
                ask.skipped["no usable answer to ask about"] += 1


def _with_pictures(read: Reader, path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The sources of `read`, with the pictures of their pairs."""
    plain = replace(ask, pictures=False)
    first_look = read(path, accepts, replace(plain, skipped=Counter()))
    pairs = {pair for source in first_look for pair in (source.id, source.other_id) if pair is not None}
    with pictures_of(pairs, ask.images) as picture_of:
        for source in read(path, accepts, plain):
            shown = [source.id] if source.other_id is None else [source.id, source.other_id]
            inputs = {**source.inputs, SHOWN: "1"}
            yield replace(source, inputs=inputs, pictures=tuple(map(picture_of, shown)))


def paired(pool: Sequence[InputRow], pairs: int | None, seed: int) -> Iterator[InputRow]:
    """Sources about two of `pool` each, in the first one's order; the second one's inputs are named `other_<name>`.

    `sample` numbers the pairs of one first source.

    Args:
        pairs: number of ordered pairs to draw without replacement, all of them where there are fewer; None draws one
            partner for each source.
    """
    drawn = _partners(len(pool), seed) if pairs is None else ordered_pairs(len(pool), pairs, seed)
    for first, group in groupby(drawn, key=itemgetter(0)):
        source = pool[first]
        for sample, (_, second) in enumerate(group):
            other = pool[second]
            others = {f"other_{name}": text for name, text in other.inputs.items()}
            yield InputRow(source.id, sample, {**source.inputs, **others}, other.id)


def _partners(count: int, seed: int) -> Iterator[tuple[int, int]]:
    rng = random.Random(f"caption pairs {seed}")
    if count > 1:
        yield from ((place, (place + rng.randrange(1, count)) % count) for place in range(count))


def ordered_pairs(count: int, wanted: int, seed: int) -> Iterator[tuple[int, int]]:
    """`wanted` of the count x (count - 1) ordered pairs of different numbers below `count`, in rising order.

    Every set of that many is as likely as any other. Memory is 8 bytes for each pair drawn.
    """
    total = count * (count - 1)
    for number in _distinct(total, min(wanted, total), np.random.default_rng(seed)):
        first, place = divmod(int(number), count - 1)
        yield first, place + (place >= first)


def _distinct(total: int, wanted: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """`wanted` different numbers below `total`, in rising order."""
    if wanted > total // 2:
        return np.setdiff1d(np.arange(total), _distinct(total, total - wanted, rng), assume_unique=True)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < wanted:
        drawn = np.union1d(drawn, rng.integers(total, size=wanted - len(drawn)))
    return drawn


_TABLE = ".parquet"


def read_classes(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The distinct class names of a `LABELS` table or of lines, sorted, as input `class_name`.

    A class's id is its name's hash.
    """
    if path.suffix == _TABLE:
        names = {name for block in LABELS.blocks(path, ["label"]) for name in block.column("label").to_pylist()}
    else:
        names = {name for (name,) in _rows(path, 1)}
    classes = (InputRow(content_hash(name), 0, {"class_name": name}) for name in sorted(names))
    yield from islice(accepted(classes, accepts, ask.skipped), ask.limit)


def read_class_pairs(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """Two classes at a time, as `class_name` and `other_class_name`.

    Lines name the pairs, each used once. From a `LABELS` table pairs are drawn, see `paired`.
    """
    if path.suffix == _TABLE:
        yield from paired(list(read_classes(path, accepts, ask)), ask.pairs, ask.seed)
        return
    for name, pairs in groupby(sorted(set(_rows(path, 2))), key=itemgetter(0)):
        sources = (
            InputRow(content_hash(name), 0, {"class_name": name, "other_class_name": other}, content_hash(other))
            for _, other in pairs
        )
        for sample, source in enumerate(accepted(sources, accepts, ask.skipped)):
            yield InputRow(source.id, sample, source.inputs, source.other_id)


def read_queries(path: Path, accepts: Accepts, ask: Ask) -> Iterator[InputRow]:
    """The first plain texts of a `CAPTION_QUERIES` table, or the first lines, each once, as input `query`.

    Several texts of an image are its samples; a line's id is its text's hash.
    """
    if path.suffix == _TABLE:
        found = _queries(path)
    else:
        found = (InputRow(content_hash(text), 0, {"query": text}) for (text,) in dict.fromkeys(_rows(path, 1)))
    return islice(accepted(found, accepts, ask.skipped), ask.limit)


def _rows(path: Path, width: int) -> Iterator[tuple[str, ...]]:
    """The lines of the file, or of all `.tsv` files below the folder in the order of their names, as `width` texts."""
    files = sorted(path.rglob("*.tsv")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no .tsv file: run `cliptune evaluate` on the benchmark that needs it")
    for file in files:
        try:
            lines = file.read_text("utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is missing or damaged ({error}): run `cliptune evaluate --overwrite`") from None
        for number, line in enumerate(lines, 1):
            row = tuple(text.strip() for text in line.split("\t"))
            if len(row) != width or not all(row):
                raise InputError(f"{file}: line {number} does not have {width} texts separated by tabs: fix it")
            yield row


def _queries(path: Path) -> Iterator[InputRow]:
    samples: Counter[str] = Counter()
    for block in CAPTION_QUERIES.blocks(path):
        for row in block.to_pylist():
            if row["register"] == "plain":
                yield InputRow(row["image_id"], samples[row["image_id"]], {"query": row["text"]})
                samples[row["image_id"]] += 1
