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

from more_itertools import batched

from components.captions.generating.asking import ask
from components.captions.generating.client import may_pass
from components.captions.generating.engines import Engine
from components.captions.generating.questions import Questions, questions_without_block
from components.captions.generating.store import GenerationStore
from components.captions.prompting.inputs.pictures import picture_row
from components.captions.prompting.request import InputRow, Request
from components.captions.prompting.tasks.pictures import ABSENT, TEXTS
from components.captions.validation.rules.checks.wording import find_unusable
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
_BLOCK = 256
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
    rows = [picture_row(found.folder, name, found.most) for name in found.names]
    asked = _Asked.of(engine, store, settings, language)
    for requests, title, most in (
        (map(asked.writing, rows), "write captions", len(rows)),
        (asked.checking(rows), "check captions", (QUESTIONS - 1) * len(rows)),
    ):
        counts = ask(store, engine, requests, title, most)
        result.tokens_in += counts.tokens_in
        result.tokens_out += counts.tokens_out
    kept, lost = list[Row](), list[Lost]()
    for block in batched(track(rows, "sort captions", len(rows), "picture"), _BLOCK):
        asked.sort(block, kept, lost)
    _check_failed(lost, len(rows), settings.synthesize.max_failed_share)
    result.rejected.update(reason.partition(":")[0] for _, _, reason in lost)
    result.texts, result.captioned = len(kept), len({row[0] for row in kept})
    shown = ((prefix + name, f"'{text}" if text.startswith(_FORMULA) else text, reason) for name, text, reason in lost)
    _write_table(output / QUARANTINE, ("image", "text", "reason"), shown)
    if not kept:
        raise InputError(f"no picture got a caption ({result}): look at {output / QUARANTINE}, or use another model")
    columns = ("image", "caption", "kind", "written_by", "absent")
    _write_table(output / CAPTIONS, columns, ((prefix + name, *others) for name, *others in kept))
    return result


def _check_failed(lost: Sequence[Lost], pictures: int, most: float) -> None:
    failed = {name: reason for name, _, reason in lost if may_pass(reason)}
    if len(failed) > most * pictures:
        reason = Counter(failed.values()).most_common(1)[0][0]
        raise InputError(
            f"{len(failed):,} of {pictures:,} pictures have no answer (most often {reason}): run the command again, "
            f"which repeats only these, or raise synthesize.max_failed_share ({most:g})"
        )


@dataclass(frozen=True)
class _Asked:
    """The questions about pictures, and their answers in the store.

    `faults` has, for the pictures whose answers break a rule, each such text's key and reason.
    """

    store: GenerationStore
    language: str
    model: str
    about: Questions
    true: Questions
    absent: Questions
    faults: dict[str, dict[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(engine: Engine, store: GenerationStore, settings: Settings, language: str) -> _Asked:
        validation = settings.validation.model_copy(update={"language": language})
        settings = settings.model_copy(update={"validation": validation})
        writing = questions_without_block(settings, "caption_picture", engine, **_WRITING)
        true, absent = (
            questions_without_block(settings, name, engine, **_CHECKING) for name in ("check_picture", "check_absent")
        )
        return _Asked(store, language, engine.model, writing, true, absent)

    def writing(self, row: InputRow) -> Request:
        """The question for texts about a picture."""
        return self.about.about(row, 0)

    def checking(self, rows: Sequence[InputRow]) -> Iterator[Request]:
        """The questions whether texts are true and whether the thing is there, of all pictures with usable texts."""
        blocks = list(batched(rows, _BLOCK))
        captions = (
            (texts[TEXTS[0]], row.id)
            for block in blocks
            for row, texts in zip(block, self._texts(block)[0], strict=True)
            if texts
        )
        constant = common_texts(captions, max(_LEAST_SAME, _SHARE_SAME * len(rows)))
        for block in blocks:
            for row, texts in zip(block, self._texts(block)[0], strict=True):
                faults = _faults(texts, self.language)
                if texts and normalised(texts[TEXTS[0]]) in constant:
                    faults = dict.fromkeys(texts, "same for many pictures")
                if faults:
                    self.faults[row.id] = faults
                yield from self._checks(row, texts)

    def sort(self, block: Sequence[InputRow], kept: list[Row], lost: list[Lost]) -> None:
        """Append the accepted texts of pictures to `kept`, and the others with their reasons to `lost`."""
        written, failures = self._texts(block)
        checks = [self._checks(row, texts) for row, texts in zip(block, written, strict=True)]
        keys = [request.key for requests in checks for request in requests]
        answers = self.store.answers(keys)
        failures |= self.store.failures(key for key in keys if key not in answers)
        for row, texts, requests in zip(block, written, checks, strict=True):
            if not texts:
                lost.append((row.id, "", failures.get(self.writing(row).key, "unparsable")))
                continue
            faults = self.faults.get(row.id, {})
            lost += [(row.id, texts[key], reason) for key, reason in faults.items()]
            true, there = self._verdicts(requests, answers)
            failed = failures.get(requests[0].key) if requests else None
            if there != "no" and len(requests) > 1:
                lost.append((row.id, texts[ABSENT], failures.get(requests[1].key, "not absent")))
            for key in (key for key in TEXTS if key not in faults):
                if true == "yes":
                    nothing = texts[ABSENT] if there == "no" else ""
                    kept.append((row.id, texts[key], key.partition("_")[0], self.model, nothing))
                else:
                    lost.append((row.id, texts[key], f"unchecked: {failed}" if failed else "untrue"))

    def _verdicts(self, requests: Sequence[Request], answers: dict[str, str]) -> tuple[str | None, str | None]:
        found = [self.true.task.parse(answers.get(request.key, "")) for request in requests]
        true, there, *_ = [*found, None, None]
        return true, there

    def _texts(self, block: Sequence[InputRow]) -> tuple[list[dict[str, str]], dict[str, str]]:
        """The texts that the model wrote about each picture, none without a usable answer; key -> why it has none."""
        keys = [self.writing(row).key for row in block]
        answers = self.store.answers(keys)
        parsed = [self.about.task.parse(answers.get(key, "")) for key in keys]
        return [json.loads(text or "{}") for text in parsed], self.store.failures(
            key for key in keys if key not in answers
        )

    def _checks(self, row: InputRow, texts: dict[str, str]) -> list[Request]:
        """Whether the texts without faults are true, and whether the thing is there; none without such texts."""
        faults = self.faults.get(row.id, {})
        shown = {key: texts[key] for key in TEXTS if texts and key not in faults}
        if not shown:
            return []
        asked = [self.true.about(InputRow(row.id, 0, shown, pictures=row.pictures), 0)]
        if ABSENT not in faults:
            asked.append(self.absent.about(InputRow(row.id, 0, {ABSENT: texts[ABSENT]}, pictures=row.pictures), 0))
        return asked


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
