"""SemCLIP's rows of CC-Neg: `prepare.folder` is the folder of benchmark `cc_neg_semclip`; see `semclip_files`."""

from __future__ import annotations

from components.data.semclip_files import SemclipFile, source_of
from components.test_sets.files import TestSetFiles
from components.test_sets.readers import cc_neg

FILE = "ccneg_paraphrased.csv"


def _file() -> SemclipFile:
    return SemclipFile(
        csv=cc_neg.CSV,
        rows=cc_neg.ROWS,
        tested=cc_neg.HELD_OUT,
        images=cc_neg.IMAGES,
        known_as=cc_neg.IMAGES.rpartition("/")[2],
        read=lambda folder: cc_neg.semclip_rows(TestSetFiles(folder))[0],
        image=cc_neg.semclip_picture_name,
    )


SOURCE = source_of(_file, FILE)
