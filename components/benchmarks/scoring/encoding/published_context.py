"""An encoder and the files of one published benchmark: features of pictures and texts, options, notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.benchmarks.scoring.encoding.context import Context
from components.benchmarks.scoring.encoding.image_features import CLIP, ImageFeatures, Preparation, raw_encoder
from components.core.compute.metrics import Features
from components.test_sets.files import TestSetFiles
from components.test_sets.pictures import LazyPicture, picture_file


@dataclass
class PublishedContext(TestSetFiles, Context):
    """One encoder and the files of one published benchmark.

    Attributes:
        seed: of every random draw.
        options: the user's options, such as a judge's name.
        image_features: the cache of image features.
        left_out: groups of metrics without values, each with the reason.
        lists: rows of texts that are written next to the results, by content: inputs of prompt tasks, and which image
            belongs to which texts.
    """

    ks: tuple[int, ...] = (1, 5, 10)
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    image_features: ImageFeatures = field(default_factory=ImageFeatures)
    left_out: list[str] = field(default_factory=list)
    lists: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def images(
        self, pictures: Sequence[LazyPicture], preparation: Preparation = CLIP, *, raw: bool = False
    ) -> Features:
        """Features `[pictures, dim]`, of unit length unless `raw`, from the cache if this image tower has seen them."""
        return self.image_features.of(self.under_test, pictures, preparation=preparation, raw=raw)

    def raw_texts(self, texts: Sequence[str]) -> Features:
        """Features `[texts, dim]` as the text tower returns them."""
        return raw_encoder(self.under_test).raw_texts(texts)

    def image_files(self, folder: str, names: Iterable[str], preparation: Preparation = CLIP) -> Features:
        """`images` of the files `names` below the benchmark's `folder`; an `InputError` if one is missing."""
        return self.images([picture_file(self.folder / folder / name) for name in names], preparation)

    def columns(self, rows: Sequence[Mapping[str, str]], *names: str) -> Iterator[Features]:
        """Unit features `[rows, dim]` of the texts in each of the columns `names`."""
        return (self.texts([row[name] for row in rows]) for name in names)
