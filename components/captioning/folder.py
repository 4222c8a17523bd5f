"""Captions for a folder of pictures without any: a vision-language model writes them, a second question checks them.

For each picture the model writes a caption, two queries as people type them, and one thing that is near but absent.
Then it reads the texts next to the picture again and says whether they are true. Answers are kept in the generation
store, so a stopped run resumes; nothing is written into the folder of the pictures before all answers are there.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from components.captions.generating.asking import ask
from components.captions.generating.engines import Engine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.disarm import disarm
from components.captions.prompting.inputs.pool import to_picture
from components.captions.prompting.parsing import scored_json, verdict, without_thought
from components.captions.prompting.request import PICTURE, Request, Sampling
from components.core.pictures.rgb import FORMATS
from components.core.system.errors import InputError
from components.core.system.progress import track
from components.core.tables.files import atomic_file
from components.core.text import normalised
from components.core.text.languages import ENGLISH, language_name, word_count
from components.data.checked_pictures import check_picture

CAPTIONS, QUARANTINE = "captions.tsv", "captions_quarantine.tsv"
KEYS = ("caption", "query_1", "query_2", "absent")
"""Texts about a picture; the last names a thing that it does not show."""
_WRITING, _CHECKING = Sampling(0.2, 0.9, 160), Sampling(0.0, 1.0, 8)
_MOST_WORDS = 40
_MOST_FAILED = 0.05
Row = tuple[str, str, str, str, str]
"""Picture, text, kind, model and the absent thing."""


@dataclass
class PictureCaptions:
    """Results of a run.

    Attributes:
        captioned: number of pictures with texts; `texts` is the number of these.
        rejected: reason -> number of pictures or texts that were rejected.
        tokens_in, tokens_out: as the server has counted them.
    """

    pictures: int = 0
    captioned: int = 0
    texts: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0

    def __str__(self) -> str:
        reasons = "".join(f", {count:,} {reason}" for reason, count in self.rejected.most_common())
        return f"{self.texts:,} texts of {self.captioned:,} of {self.pictures:,} pictures{reasons}"


def picture_files(folder: Path) -> list[Path]:
    """The files of pictures in a folder and below, by their endings, sorted.

    Raises:
        InputError: the folder does not exist, or has none.
    """
    from PIL import Image

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder of the pictures")
    endings = {ending for ending, format_ in Image.registered_extensions().items() if format_ in FORMATS}
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in endings and path.is_file())
    if not found:
        raise InputError(f"{folder} has no pictures ({', '.join(FORMATS)}): give the folder of the pictures")
    return found


def caption_folder(
    folder: Path, output: Path, engine: Engine, store: GenerationStore, language: str = ENGLISH
) -> PictureCaptions:
    """Write `captions.tsv` and `captions_quarantine.tsv` to `output` for the pictures in `folder`.

    Each line of the first has a picture, a text, its kind, the model, and the thing that the model did not see when it
    looked for it; source `folder` reads picture and text. The second has every picture and text that was rejected, with
    the reason.

    Raises:
        InputError: there are captions already, there are no pictures, the model cannot answer, more than one in twenty
            questions failed, or no picture got a caption; the answers are stored.
    """
    if (output / CAPTIONS).exists():
        raise InputError(f"{output / CAPTIONS} exists: move it away, or give another --out")
    files, asked = picture_files(folder), _Asked(engine, store, language)
    usable = [path for path in track(files, "check pictures", len(files), "picture") if _is_usable(path)]
    found = PictureCaptions(len(files))
    asked.ask(found, (asked.writing(path) for path in usable), "write captions", len(usable))
    asked.ask(found, (one for path in usable for one in asked.checking(path)), "check captions", 2 * len(usable))
    rows, lost = list[Row](), [(_name(path, folder), "", "unreadable") for path in files if path not in {*usable}]
    for path in usable:
        asked.sort(path, _name(path, folder), rows, lost)
    found.rejected.update(reason for _, _, reason in lost)
    found.texts, found.captioned = len(rows), len({row[0] for row in rows})
    _write_table(output / QUARANTINE, ("image", "text", "reason"), lost)
    if not rows:
        raise InputError(f"no picture got a caption ({found}): look at {output / QUARANTINE}, or use another model")
    _write_table(output / CAPTIONS, ("image", "caption", "kind", "written_by", "absent"), rows)
    return found


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _is_usable(path: Path) -> bool:
    try:
        check_picture(path.read_bytes(), str(path))
    except (InputError, OSError):
        return False
    return True


@dataclass(frozen=True)
class _Asked:
    """The questions about pictures, and their answers in the store."""

    engine: Engine
    store: GenerationStore
    language: str

    def ask(self, found: PictureCaptions, requests: Iterable[Request], title: str, most: int) -> None:
        """Have all open questions answered; memory holds the pictures in flight."""
        counts = ask(self.store, self.engine, requests, title, most)
        found.tokens_in += counts.tokens_in
        found.tokens_out += counts.tokens_out
        counts.check_failed(title, _MOST_FAILED)

    def writing(self, path: Path) -> Request:
        """The question for texts about a picture."""
        named = "" if self.language == ENGLISH else f" Write in {language_name(self.language)}."
        question = (
            f"{PICTURE}Describe this picture for an image search. Answer with one JSON object with the keys "
            '"caption" (one sentence on what it shows), "query_1" and "query_2" (what two people would type to find '
            'it, in other words) and "absent" (one thing that could well be in such a picture and is not in this '
            f"one, one to three words).{named}"
        )
        return self._request("caption_picture", "You answer with JSON only.", question, path, _WRITING)

    def checking(self, path: Path) -> list[Request]:
        """The questions whether the texts are true and whether the thing is there; none without texts."""
        texts = self.texts(path)
        if texts is None:
            return []
        shown = "\n".join(f'- "{disarm(texts[key])}"' for key in KEYS[:-1])
        questions = (
            f'{PICTURE}Are all of these texts true of this picture?\n{shown}\nAnswer "Yes" or "No".',
            f'{PICTURE}Does this picture show "{disarm(texts["absent"])}"? Answer "Yes" or "No".',
        )
        system = "You look closely and judge texts."
        return [self._request("check_picture", system, question, path, _CHECKING) for question in questions]

    def texts(self, path: Path) -> dict[str, str] | None:
        """The texts that the model wrote about a picture; None without a usable answer."""
        key = self.writing(path).key
        answer = self.store.answers([key]).get(key)
        parsed = None if answer is None else scored_json(without_thought(answer), KEYS)
        return None if parsed is None else dict(json.loads(parsed))

    def sort(self, path: Path, name: str, rows: list[Row], lost: list[tuple[str, str, str]]) -> None:
        """Append the accepted texts of a picture to `rows`, and the others with their reasons to `lost`."""
        texts = self.texts(path)
        if texts is None:
            lost.append((name, "", "unanswered"))
            return
        keys = [request.key for request in self.checking(path)]
        answers = self.store.answers(keys)
        true, there = (verdict(answers.get(key, "")) for key in keys)
        if true != "yes":
            lost += [(name, texts[key], "untrue") for key in KEYS[:-1]]
            return
        if there != "no":
            lost.append((name, texts["absent"], "not absent"))
        seen, absent = set[str](), texts["absent"] if there == "no" else ""
        for key in KEYS[:-1]:
            fault = _fault(texts[key], seen)
            seen.add(normalised(texts[key]))
            if fault:
                lost.append((name, texts[key], fault))
            else:
                rows.append((name, texts[key], key.partition("_")[0], self.engine.model, absent))

    def _request(self, task: str, system: str, question: str, path: Path, sampling: Sampling) -> Request:
        chat = (("system", system), ("user", question))
        picture = (to_picture(path.read_bytes(), path, path.name),)
        parse = partial(scored_json, keys=KEYS) if sampling is _WRITING else verdict
        return Request(task, chat, self.engine.model, sampling, 0, picture, parse)


def _fault(text: str, seen: Collection[str]) -> str:
    """Why a text is not used; empty if it is."""
    if not 1 <= word_count(text) <= _MOST_WORDS:
        return "length"
    return "repeated" if normalised(text) in seen else ""


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([" ".join(cell.split()) for cell in row] for row in rows)
