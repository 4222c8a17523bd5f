"""SemCLIP's rows of CC-Neg: `prepare.folder` is the folder of benchmark `cc_neg_semclip`; see `semclip_files`."""

from __future__ import annotations

from components.data.semclip_files import SemclipFile, source_of

FILE = "ccneg_paraphrased.csv"


def _file() -> SemclipFile:
    from components.benchmarks.published import cc_neg
    from components.benchmarks.test_sets import reading

    return SemclipFile(
        csv=cc_neg.CSV,
        rows=cc_neg.ROWS,
        tested=cc_neg.HELD_OUT,
        images=cc_neg.IMAGES,
        known_as=cc_neg.IMAGES.rpartition("/")[2],
        read=lambda folder: cc_neg.semclip_rows(reading(folder))[0],
        image=cc_neg.semclip_picture_name,
    )


SOURCE = source_of(_file, FILE)
