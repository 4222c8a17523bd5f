"""Decodes the texts and pixels of a sample of a shard, or names its fault."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from components.core.pictures.rgb import TooLargeError, check_size, open_picture
from components.core.pictures.shards.reader import Fault, RawSample, sound
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.data.leaks.report import TestSetKeys
from components.encoders.adapter.images import decode


@dataclass(frozen=True)
class DecodedSample:
    """A usable sample: texts by column, uint8 pixels `[1, 3, size, size]` by image column."""

    name: str
    texts: Mapping[str, str]
    pixels: Mapping[str, Tensor]


class SampleDecoder:
    """Decodes samples; safe to call from several threads.

    Args:
        images: members by image column, of which the first existing one is used: `jpg|jpeg|png|webp`.
        texts: member by text column: `txt`, or a field of a JSON member: `json:paraphrase_1`.
        size: pixels on a side.
        held_out: ids of images that training must not see, see `components.core.tables.files.image_id`.
        published: texts and pictures of test sets; such samples are faults.

    Raises:
        InputError: a column's member is written differently.
    """

    def __init__(
        self,
        images: Mapping[str, str],
        texts: Mapping[str, str],
        size: int,
        held_out: Collection[str] = (),
        published: TestSetKeys | None = None,
    ) -> None:
        self._published = published or TestSetKeys()
        self._images = {column: [ending.lower() for ending in given.split("|")] for column, given in images.items()}
        self._texts = {column: given.partition(":") for column, given in texts.items()}
        self._size, self._held_out = size, frozenset(held_out)
        for column, given in {**images, **texts}.items():
            if not all(part.strip() for part in given.replace("|", ":").split(":")):
                raise InputError(f"column '{column}' cannot come from '{given}': write jpg|png, txt or json:field")
        self.members = {ending for endings in self._images.values() for ending in endings}
        self.members |= {ending.lower() for ending, _, _ in self._texts.values()}
        """Endings of all needed members."""

    def __call__(self, sample: RawSample) -> DecodedSample | Fault | None:
        """The decoded sample, its fault, or None if it shows a held-out image."""
        try:
            if sample.fault is not None:
                raise sample.fault
            if self._held_out and any(image_id(raw) in self._held_out for raw in self._encoded(sample)):
                return None
            texts = {column: _text(sample, ending, key) for column, (ending, _, key) in self._texts.items()}
            if test_set := self._published.find(texts.values(), self._encoded(sample)):
                raise Fault(f"in the test set {test_set}")
            return DecodedSample(sample.name, texts, {column: self._pixels(sample, column) for column in self._images})
        except Fault as fault:
            return fault

    def _encoded(self, sample: RawSample) -> Iterator[bytes]:
        """The sample's encoded images."""
        for endings in self._images.values():
            for ending in endings:
                if isinstance(raw := sample.members.get(ending), bytes):
                    yield raw

    def _pixels(self, sample: RawSample, column: str) -> Tensor:
        members = [sample.members[ending] for ending in self._images[column] if ending in sample.members]
        if not members or not members[0]:
            raise Fault("no image")
        return _picture(sound(members[0]), self._size)


def _picture(raw: bytes, size: int) -> Tensor:
    try:
        with open_picture(raw) as image:
            check_size(image)
    except TooLargeError:
        raise Fault("too large") from None
    except ValueError:
        raise Fault("not an image") from None
    try:
        return decode([raw], size)
    except InputError:
        raise Fault("broken image") from None


def _text(sample: RawSample, ending: str, key: str) -> str:
    if not (text := sample.text(ending.lower(), key)):
        raise Fault("no text")
    return text
