"""What published benchmarks are given besides: features of pictures, options, and notes of what is amiss with files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.benchmarks.encoding.context import Context
from components.benchmarks.encoding.image_features import ImageFeatures
from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.preparation import CLIP, Preparation
from components.core.errors import InputError
from components.core.metrics import Features


@dataclass
class PublishedContext(Context):
    """One encoder before the files of one published benchmark.

    Attributes:
        seed: of everything that is drawn.
        allow_partial: go on with fewer or other rows than the authors publish, and say so in the result.
        options: what the user chose for single benchmarks, such as a judge's name.
        notes: what is amiss with the data; a result with notes is not comparable with published figures.
        image_features: the cache of image features.
    """

    ks: tuple[int, ...] = (1, 5, 10)
    seed: int = 0
    allow_partial: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    image_features: ImageFeatures = field(default_factory=ImageFeatures)

    def images(self, pictures: Sequence[Picture], preparation: Preparation = CLIP) -> Features:
        """Unit features `[pictures, dim]`, from the cache where this image tower has seen them.

        Raises:
            InputError: the encoder has no image tower, or a picture cannot be decoded.
        """
        return self.image_features.of(self.under_test, pictures, preparation=preparation)

    def expect(self, what: str, found: int, published: int) -> None:
        """Compare a count with the published one.

        Raises:
            InputError: they differ, and `allow_partial` is off.
        """
        if found != published:
            self.amiss(f"{what}: {found:,} found, {published:,} published")

    def amiss(self, what: str) -> None:
        """Note that something is not as published, such as "images/: 3 of 5,000 cannot be decoded, first 000012.jpg".

        Raises:
            InputError: `allow_partial` is off.
        """
        if not self.allow_partial:
            raise InputError(
                f"{self.folder}: {what}: complete the data, or give --allow-partial to score what is there"
            )
        self.notes.append(what)

    def read_json(self, path: str) -> Any:
        """A JSON file of the benchmark.

        Raises:
            InputError: it is no JSON.
        """
        try:
            return json.loads((self.folder / path).read_text("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            raise InputError(f"{self.folder / path} is damaged ({error}): fetch it again") from None
