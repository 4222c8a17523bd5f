"""Engine `table`: answers from a table that people, another tool or a vendor wrote, found by caption or by picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from more_itertools import batched
from pydantic import Field

from components.captions.prompting.parsing import first_line
from components.captions.prompting.request import Reply, Request, disarm
from components.captions.prompting.tasks import find_task
from components.core.settings import Block
from components.core.system.errors import InputError
from components.core.tables import folders
from components.core.tables.files import file_hash
from components.core.tables.records import PAIRS
from components.data.row_files import RowFiles

if TYPE_CHECKING:
    from components.captions.generating.engines import Engine

_Key = tuple[str, ...]
"""The texts that a question is about, as it quotes them; or the picture."""
_Answers = dict[_Key, list[str]]


class TableOptions(Block):
    """Settings of the engine `table`."""

    path: Path
    """TSV, CSV, JSON lines, a JSON list or Parquet."""
    columns: dict[str, str] = Field(default_factory=dict)
    """`caption`, or a prompt task -> the column with it; by default the column that has the name of the text that the
    task writes, such as `paraphrase_1` or `negation`. A row answers questions about the same caption."""
    image: str | None = None
    """The column with the picture's path or name; where it is set, rows are found by it and not by caption."""
    otherwise: str | None = None
    """A key of `synthesize.llms` for questions without an answer here; by default they are left out and counted."""


@dataclass(frozen=True)
class TableEngine:
    """Gives the n-th row about a caption or a picture as the n-th answer about it."""

    options: TableOptions
    other: Engine | None = None
    """Answers questions without a row."""
    _read: dict[str, _Answers] = field(default_factory=dict)
    _found: dict[str, set[tuple[_Key, int]]] = field(default_factory=lambda: defaultdict(set))
    _missed: dict[str, Request] = field(default_factory=dict)
    """By task: its answers, those that `has` found, and the first question without one."""

    @cached_property
    def model(self) -> str:
        """Name and hash of the file, and the other model."""
        if not self.options.path.is_file():
            raise InputError(f"params.yaml: synthesize.llms: table {self.options.path} is missing: correct its `path`")
        other = f" or {self.other.model}" if self.other is not None else ""
        return f"{self.options.path.name[:80]}@{file_hash(self.options.path)[:12]}{other}"

    def has(self, request: Request) -> bool:
        """Whether the request can be answered; counts the table's answers for `answer`."""
        place = self._place(request)
        if place is None:
            self._missed.setdefault(request.task, request)
        else:
            self._found[request.task].add(place)
        return place is not None or self.other is not None

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield the table's replies and, as they arrive, those of the other model; then say which rows are unused."""
        ready = list[Request]()
        if self.other is None:
            for batch in batched(requests, 1_000):
                yield [self._reply(request) for request in batch]
        else:
            for replies in self.other.answer(self._left(requests, ready)):
                yield [*replies, *map(self._reply, ready)]
                ready.clear()
            yield [self._reply(request) for request in ready]
        for task in dict.fromkeys([*self._found, *self._missed]):
            self._report(task)

    def _left(self, requests: Iterable[Request], ready: list[Request]) -> Iterator[Request]:
        """The requests without a row; the others are appended to `ready`."""
        for request in requests:
            if self._place(request) is None:
                yield request
            else:
                ready.append(request)

    def _reply(self, request: Request) -> Reply:
        place = self._place(request)
        if place is None:
            return Reply(request, None, f"{self.options.path.name} has no answer")
        return Reply(request, self._answers(request.task)[place[0]][place[1]])

    def _report(self, task: str) -> None:
        used, of = len(self._found[task]), sum(map(len, self._answers(task).values()))
        if not used and self.other is None:
            about = next(iter(self._missed[task].source.inputs.values()))[:80]
            raise InputError(
                f"{self.options.path} answers no question of task '{task}', the first of which is about '{about}': "
                "name the data's captions word for word, or its pictures in the column `image`"
            )
        if used < of:
            why = "belong to no question: their captions are others, or have more rows than `samples`"
            print(f"{task}: {of - used:,} of the {of:,} answers in {self.options.path.name} {why}")

    def _place(self, request: Request) -> tuple[_Key, int] | None:
        """Key and number of the answer."""
        answers, number = self._answers(request.task), request.attempt
        return next(((key, number) for key in self._keys(request) if number < len(answers.get(key, []))), None)

    def _keys(self, request: Request) -> Iterator[_Key]:
        """The possible keys of its rows: the texts of the question, or the ends of the picture's path."""
        if self.options.image is None:
            yield tuple(disarm(request.source.inputs[name]) for name in find_task(request.task).inputs)
            return
        parts = PurePath(self._pictures.get(request.source.id, "")).parts
        yield from ((PurePath(*parts[start:]).as_posix(),) for start in range(len(parts)))

    @cached_property
    def _pictures(self) -> dict[str, str]:
        """Pair -> the picture's path."""
        rows = (
            row for block in PAIRS.blocks(folders.PAIRS / "train.parquet", ["id", "file"]) for row in block.to_pylist()
        )
        return {row["id"]: row["file"] or "" for row in rows}

    def _answers(self, task: str) -> _Answers:
        """The answers about the same texts or picture, in the order of the table."""
        if task not in self._read:
            self._read[task] = self._answers_in_file(task)
        return self._read[task]

    def _answers_in_file(self, name: str) -> _Answers:
        task, path, image = find_task(name), self.options.path, self.options.image
        named = self.options.columns
        about = [named.get(text, text) for text in task.inputs] if image is None else [image]
        columns = [*about, named.get(name, task.outputs[0] if task.outputs else name)]
        fix = f"correct `columns` or `image` of this model, or name another in synthesize.tasks.{name}.llm"
        files = RowFiles(names=(), roles={}, text="text", texts="texts", fix=fix)
        if image is not None and any(text.startswith("other_") for text in task.inputs):
            raise InputError(f"params.yaml: task '{name}' is about two captions: remove `image` of its table {path}")
        if path.suffix not in files.endings:
            raise InputError(f"{path}: a table of answers is a file {', '.join(sorted(files.endings))}: convert it")
        found = defaultdict[_Key, list[str]](list)
        for place, row in files.rows(path, {column: (column,) for column in columns}):
            cells = [row.get(column) for column in columns]
            if odd := [cell for cell in cells if not isinstance(cell, str | None)]:
                raise InputError(f"{path}: {place} has {str(odd[0])[:60]!r}, not a text: write a row per answer")
            *texts, answer = (cell.strip() if cell else "" for cell in cells)
            if answer and all(texts):
                # As a question quotes them; the cell of another task's answer is read as one.
                inputs = zip(task.inputs, texts, strict=False)
                read = [one if "caption" in name else first_line(one) or "" for name, one in inputs]
                found[tuple(map(disarm, read)) if image is None else (texts[0].removeprefix("./"),)].append(answer)
        return found


ENGINE = (TableOptions, TableEngine)
