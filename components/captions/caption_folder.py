"""Captions for a folder of pictures without any: a vision-language model writes them, other questions check them.

For each picture the model writes a caption, two queries as people type them, and one thing that is near but absent.
Texts that break a rule of `validate` are rejected. Then the model reads the others next to the picture again and says
whether they are true. Answers are kept in the generation store, so a stopped run resumes; nothing is written into the
folder of the pictures before all answers are there.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.captions.generating.asking import ask, outcomes
from components.captions.generating.client import may_pass
from components.captions.generating.engines import Engine
from components.captions.generating.questions import questions_without_block
from components.captions.generating.store import GenerationStore
from components.captions.prompting.pictures import picture_row
from components.captions.prompting.request import InputRow, Request
from components.captions.prompting.tasks.pictures import ABSENT, TEXTS
from components.captions.validation.rules.wording import find_unusable
from components.core.pictures.folder import PICTURE_BOUND, FolderPictures, pictures_in
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.system.user_files import Bound
from components.core.tables.files import atomic_file
from components.core.text import common_texts, normalised
from components.core.text.languages import ENGLISH, word_count

CAPTIONS, QUARANTINE = "captions.tsv", "captions_quarantine.tsv"
QUESTIONS = 3
"""Most questions about a picture."""
_WRITING = {"temperature": 0.2, "top_p": 0.9, "max_tokens": 512}
_CHECKING = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 256}
"""A reasoning model needs room for its thoughts."""
_MOST_WORDS = 40
_LEAST_SAME, _SHARE_SAME = 10, 0.05
"""A caption of so many pictures, and of such a share of them, was written without looking."""
_FORMULA = ("=", "+", "-", "@")
"""A cell that begins with one of these is a formula in a spreadsheet."""
Row = tuple[str, str, str, str, str]
"""Picture, text, kind, model and the absent thing."""
Lost = tuple[str, str, str]
"""Picture, text and reason."""


@dataclass
class PictureCaptions:
    """Results of a run.

    Attributes:
        captioned: number of pictures with texts; `texts` is the number of these.
        rejected: reason -> number of pictures or texts that were rejected.
        tokens_in, tokens_out: as the server has counted them.
        base: the folder to which the names of the pictures are relative.
    """

    pictures: int
    base: Path
    captioned: int = 0
    texts: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0

    def __str__(self) -> str:
        reasons = "".join(f", {count:,} {reason}" for reason, count in self.rejected.most_common())
        return f"{self.texts:,} texts of {self.captioned:,} of {self.pictures:,} pictures{reasons}"


@dataclass(frozen=True)
class Captionable:
    """The pictures of a folder that can have captions; `notes` has one line for each kind of files left out.

    A picture that is larger than `most` when it is read has no caption.
    """

    folder: Path
    names: list[str]
    notes: list[str]
    most: Bound


def find_pictures(folder: Path, most: Bound = PICTURE_BOUND) -> Captionable:
    """The pictures in a folder and below."""
    found: FolderPictures = pictures_in(folder, most)
    found.require()
    odd = [name for name in found.names if not _fits_a_table(name)]
    names = [name for name in found.names if _fits_a_table(name)] if odd else found.names
    notes = list(found.notes)
    if odd:
        notes.append(
            f"{len(odd):,} pictures whose names have a tab, a line break or a byte that is not UTF-8, which {CAPTIONS} "
            f"cannot hold: rename them, the first is {odd[0]!a}"
        )
    return Captionable(folder, names, notes, most)


def _fits_a_table(name: str) -> bool:
    return not any(mark in name for mark in "\t\n\r") and name.encode("utf-8", "ignore").decode() == name


def caption_folder(
    found: Captionable,
    output: Path,
    engine: Engine,
    store: GenerationStore,
    settings: Settings,
    language: str = ENGLISH,
) -> PictureCaptions:
    """Write `captions.tsv` and `captions_quarantine.tsv` to `output` for the pictures in a folder.

    Each line of the first has a picture, a text, its kind, the model, and the thing that the model did not see when it
    looked for it; source `folder` reads picture and text. The second has every picture and text that was rejected, with
    the reason. Names of pictures are relative to `output` if the pictures are below it, else to their own folder.
    """
    if (output / CAPTIONS).exists():
        raise InputError(f"{output / CAPTIONS} exists: move it away, or give another --out")
    folder = found.folder.resolve()
    is_below = folder.is_relative_to(output.resolve())
    result = PictureCaptions(len(found.names), output if is_below else found.folder)
    prefix = f"{folder.relative_to(output.resolve()).as_posix()}/" if is_below and folder != output.resolve() else ""
    pictures = _captioned(found, engine, store, settings, language, result)
    lost = [(one.row.id, one.texts.get(key, ""), reason) for one in pictures for key, reason in one.faults.items()]
    _check_failed(lost, len(pictures), settings.synthesize.max_failed_share)
    kept = [row for one in pictures for row in one.rows(engine.model)]
    result.rejected.update(reason.partition(":")[0] for _, _, reason in lost)
    result.texts, result.captioned = len(kept), len({row[0] for row in kept})
    shown = ((prefix + name, f"'{text}" if text.startswith(_FORMULA) else text, reason) for name, text, reason in lost)
    _write_table(output / QUARANTINE, ("image", "text", "reason"), shown)
    if not kept:
        raise InputError(f"no picture got a caption ({result}): look at {output / QUARANTINE}, or use another model")
    columns = ("image", "caption", "kind", "written_by", "absent")
    _write_table(output / CAPTIONS, columns, ((prefix + name, *others) for name, *others in kept))
    return result


@dataclass
class _Captioned:
    """A picture, the texts that the model wrote about it, and why some of them, or all (`""`), are rejected, by key."""

    row: InputRow
    texts: dict[str, str]
    faults: dict[str, str]

    def rows(self, model: str) -> list[Row]:
        """The accepted texts."""
        absent = "" if ABSENT in self.faults else self.texts.get(ABSENT, "")
        kept = [key for key in TEXTS if key in self.texts and key not in self.faults]
        return [(self.row.id, self.texts[key], key.partition("_")[0], model, absent) for key in kept]


def _captioned(
    found: Captionable,
    engine: Engine,
    store: GenerationStore,
    settings: Settings,
    language: str,
    result: PictureCaptions,
) -> list[_Captioned]:
    """Have the model write texts and check those without a fault; counts the tokens in `result`."""
    validation = settings.validation.model_copy(update={"language": language})
    settings = settings.model_copy(update={"validation": validation})
    writing = questions_without_block(settings, "caption_picture", engine, **_WRITING)
    true, absent = (
        questions_without_block(settings, name, engine, **_CHECKING) for name in ("check_picture", "check_absent")
    )
    rows = [picture_row(found.folder, name, found.most) for name in found.names]
    written = ask(store, engine, (writing.about(row, 0) for row in rows), "write captions", len(rows))
    pictures = []
    for request, answer, failure in outcomes(store, (writing.about(row, 0) for row in rows)):
        texts = json.loads(writing.task.parse(answer or "") or "{}")
        faults = _faults(texts, language) if texts else {"": failure or "unparsable"}
        pictures.append(_Captioned(request.source, texts, faults))
    _reject_constant(pictures)

    def checks() -> Iterator[Request]:
        """Whether texts are true and whether the thing is there, of every picture with usable texts."""
        for one in pictures:
            shown = {key: one.texts[key] for key in TEXTS if key in one.texts and key not in one.faults}
            if shown:
                yield true.about(InputRow(one.row.id, 0, shown, pictures=one.row.pictures), 0)
            if shown and ABSENT not in one.faults:
                thing = {ABSENT: one.texts[ABSENT]}
                yield absent.about(InputRow(one.row.id, 0, thing, pictures=one.row.pictures), 0)

    checked = ask(store, engine, checks(), "check captions", (QUESTIONS - 1) * len(rows))
    result.tokens_in, result.tokens_out = written.tokens_in + checked.tokens_in, written.tokens_out + checked.tokens_out
    faulty = {one.row.id: one.faults for one in pictures}
    for request, answer, failure in outcomes(store, track(checks(), "sort captions", checked.total, "question")):
        verdict = true.task.parse(answer or "")
        if request.task == absent.task.name and verdict != "no":
            faulty[request.source.id][ABSENT] = failure or "not absent"
        elif request.task == true.task.name and verdict != "yes":
            reason = f"unchecked: {failure}" if failure else "untrue"
            faulty[request.source.id].update(dict.fromkeys(request.source.inputs, reason))
    return pictures


def _reject_constant(pictures: Sequence[_Captioned]) -> None:
    """Reject all texts of pictures whose caption many pictures have."""
    captions = ((one.texts[TEXTS[0]], one.row.id) for one in pictures if one.texts)
    constant = common_texts(captions, max(_LEAST_SAME, _SHARE_SAME * len(pictures)))
    for one in pictures:
        if one.texts and normalised(one.texts[TEXTS[0]]) in constant:
            one.faults = dict.fromkeys(one.texts, "same for many pictures")


def _check_failed(lost: Sequence[Lost], pictures: int, most: float) -> None:
    failed = {name: reason for name, _, reason in lost if may_pass(reason)}
    if len(failed) > most * pictures:
        reason = Counter(failed.values()).most_common(1)[0][0]
        raise InputError(
            f"{len(failed):,} of {pictures:,} pictures have no answer (most often {reason}): run the command again, "
            f"which repeats only these, or raise synthesize.max_failed_share ({most:g})"
        )


def _faults(texts: dict[str, str], language: str) -> dict[str, str]:
    """The key of each text that cannot be used -> why."""
    faults, seen = dict[str, str](), set[str]()
    for key, text in texts.items():
        if text.startswith(_FORMULA):
            faults[key] = "formula"
        elif not 1 <= word_count(text) <= _MOST_WORDS:
            faults[key] = "length"
        elif normalised(text) in seen:
            faults[key] = "repeated"
        elif (fault := find_unusable(text, (language,))) is not None:
            faults[key] = fault
        seen.add(normalised(text))
    return faults


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        # A name is kept to the byte; in other cells a tab or a line break is a space.
        writer.writerows([name, *(" ".join(cell.split()) for cell in cells)] for name, *cells in rows)
