"""Scores of written captions against references, by pycocoevalcap, which image captioning papers use.

CLIP4IDC's released code uses it too. BLEU, ROUGE-L and CIDEr-D are plain Python; METEOR is its authors' Java program,
which comes with the package; without Java it is skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.core.errors import InputError
from components.core.metrics import Reals
from components.core.progress import bar


@dataclass(frozen=True)
class CaptionScores:
    """Scores of captions.

    Attributes:
        bleu_4: of the whole corpus (Papineni et al. 2002), up to four words in a row, closest reference length.
        rouge_l: of each caption `[captions]`, longest common subsequence, beta 1.2.
        cider: CIDEr-D of each `[captions]` (Vedantam et al. 2015), 0 to 10; word counts are those of these references.
        meteor: of the whole corpus, version 1.5; None without Java.
    """

    bleu_4: float
    rouge_l: Reals
    cider: Reals
    meteor: float | None


def caption_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScores:
    """Score one caption for each picture or pair.

    Args:
        captions: words in lower case with one space between, without punctuation; may be empty.
        references: one and more for each caption, in the same form, none empty.

    Raises:
        InputError: pycocoevalcap is not installed, or METEOR's program cannot be run.
        ValueError: a caption has no reference.
    """
    if len(captions) != len(references) or not all(references):
        raise ValueError("every caption needs a reference")
    bleu, rouge, cider = _scorers()
    written = {row: [caption] for row, caption in enumerate(captions)}
    wanted = {row: list(sentences) for row, sentences in enumerate(references)}
    return CaptionScores(
        bleu_4=float(bleu(4).compute_score(wanted, written, verbose=0)[0][3]),
        rouge_l=np.asarray(rouge().compute_score(wanted, written)[1], dtype=np.float64),
        cider=np.asarray(cider().compute_score(wanted, written)[1], dtype=np.float64),
        meteor=_meteor(wanted, written) if has_java() else None,
    )


def has_java() -> bool:
    """Whether METEOR can be computed."""
    return shutil.which("java") is not None


def require_scorers() -> None:
    """Raise `InputError` where pycocoevalcap is not installed."""
    _scorers()


def _scorers() -> tuple[Any, Any, Any]:
    try:
        from pycocoevalcap.bleu.bleu import Bleu
        from pycocoevalcap.cider.cider import Cider
        from pycocoevalcap.rouge.rouge import Rouge
    except ImportError:
        raise InputError(
            "captions are scored by pycocoevalcap: install it with `pip install cliptune[captioning]`"
        ) from None
    return Bleu, Rouge, Cider


def _meteor(wanted: dict[int, list[str]], written: dict[int, list[str]]) -> float:
    from pycocoevalcap.meteor.meteor import Meteor

    program = Meteor()
    try:
        # Most of the time goes into its start.
        with bar("score by METEOR", len(written), "caption") as progress:
            score: float = program.compute_score(wanted, written)[0]
            progress.update(len(written))
    except (OSError, ValueError) as error:
        # The program still holds its lock, and its destructor would wait for it forever; pending input is lost.
        program.lock.release()
        with suppress(OSError):
            program.meteor_p.stdin.close()
        raise InputError(
            f"METEOR's Java program ended without a score ({error}): try `java -version`, or take Java out of PATH"
        ) from None
    return score
