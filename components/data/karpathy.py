"""Karpathy's split files of COCO, Flickr8k and Flickr30k: `dataset_<name>.json`, captions and splits of all images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from components.core.errors import InputError
from components.core.settings import Prepare
from components.data.listing import Line, Listing, checked_line
from components.data.splits import split_said


class _Sentence(BaseModel):
    raw: str


class _Image(BaseModel):
    model_config = ConfigDict(extra="ignore")

    filename: str
    filepath: str = ""
    split: str
    sentences: list[_Sentence]


def read_karpathy(file: Path, folder: Path, settings: Prepare) -> Listing:
    """All captions with their published split; COCO's `restval` trains.

    Raises:
        InputError: the file is damaged, laid out otherwise, or has an unknown split or an empty caption.
    """
    lines = []
    for number, raw in enumerate(json_list(file, json_object(file), "images")):
        place = f"images[{number}]"
        try:
            image = _Image.model_validate(raw)
        except ValidationError as error:
            raise InputError(f"{file}: {place} is not as published ({told(error)}): fetch it again") from None
        split = split_said(f"{file}: {place}", image.split)
        name = (Path(image.filepath) / image.filename).as_posix()
        for sentence in image.sentences:
            line = Line(place, name, sentence.raw, split=split)
            lines.append(checked_line(file, line, settings))
    return Listing(file, folder, lines)


def json_object(file: Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Raises:
        InputError: it does not.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}): fetch it again") from None
    if not isinstance(found, dict):
        raise InputError(f"{file} holds no JSON object: fetch it again")
    return found


def json_list(file: Path, content: dict[str, Any], key: str) -> list[Any]:
    """The list `key` of a file's object.

    Raises:
        InputError: there is none.
    """
    found = content.get(key)
    if not isinstance(found, list):
        raise InputError(f"{file} has no list '{key}': fetch it again")
    return found


def told(error: ValidationError) -> str:
    """The first fault of a record: its key and what is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
