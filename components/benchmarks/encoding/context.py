"""What every benchmark is given: one encoder, a folder of files, and the texts embedded so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.benchmarks.encoding.encoder_under_test import EncoderUnderTest
from components.benchmarks.encoding.text_features import embed_new
from components.core.metrics import Features


@dataclass
class Context:
    """One encoder before the benchmarks of one folder.

    Attributes:
        under_test: the encoder.
        folder: the benchmark's files.
        ks: depths of ranking metrics.
    """

    under_test: EncoderUnderTest
    folder: Path
    ks: tuple[int, ...]
    _known: dict[str, Features] = field(init=False, default_factory=dict, repr=False)

    def texts(self, texts: Sequence[str]) -> Features:
        """Unit features `[texts, dim]`; equal texts are embedded once, in order of length.

        Raises:
            InputError: the encoder returns a non-finite feature.
        """
        return embed_new(self.under_test.encoder, texts, self._known)
