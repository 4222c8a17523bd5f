"""One encoder before one published benchmark: its features, the benchmark's files, and what is amiss with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.benchmarks.encoding.encoder_under_test import EncoderUnderTest
from components.benchmarks.encoding.image_features import ImageFeatures
from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.preparation import CLIP, Preparation
from components.benchmarks.encoding.text_features import embed_new
from components.core.errors import InputError
from components.core.metrics import Features


@dataclass
class BenchmarkContext:
    """What a benchmark's `score` is given.

    Attributes:
        under_test: the encoder.
        folder: the benchmark's files.
        ks: depths of ranking metrics.
        seed: of everything that is drawn.
        allow_partial: go on with fewer or other rows than the authors publish, and say so in the result.
        options: what the user chose for single benchmarks, such as a judge's name.
        notes: what is amiss with the data; a result with notes is not comparable with published figures.
        image_features: the cache of image features.
    """

    under_test: EncoderUnderTest
    folder: Path
    ks: tuple[int, ...] = (1, 5, 10)
    seed: int = 0
    allow_partial: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    image_features: ImageFeatures = field(default_factory=ImageFeatures)
    _known: dict[str, Features] = field(default_factory=dict, repr=False)

    def texts(self, texts: Sequence[str]) -> Features:
        """Unit features `[texts, dim]`; equal texts are embedded once, in order of length.

        Raises:
            InputError: the encoder returns a non-finite feature.
        """
        return embed_new(self.under_test.encoder, texts, self._known)

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
