"""SemCLIP's rows of SugarCrepe++: `prepare.folder` is the folder of benchmark `sugar_crepe_pp`; see `semclip_files`.

Whoever trains on them has no use any more for `sugar_crepe_pp` and `sugar_crepe_pp_semclip`, which score all rows: what
is left to test with is `sugar_crepe_pp_semclip_released`. So `prepare.benchmarks` must not name a folder that holds
SugarCrepe++, or nothing is left to train on.
"""

from __future__ import annotations

from components.data.semclip_files import SemclipFile, source_of
from components.test_sets.files import TestSetFiles
from components.test_sets.readers import sugar_crepe

FILE = "sugarcrepe_pp_paraphrased.csv"


def _file() -> SemclipFile:
    return SemclipFile(
        csv=sugar_crepe.CSV,
        rows=sugar_crepe.ROWS,
        tested=sugar_crepe.ROWS // 10,
        images="images",
        known_as="val2017",
        read=lambda folder: sugar_crepe.semclip_rows(TestSetFiles(folder))[0],
        image=lambda row: str(row["filename"]),
    )


SOURCE = source_of(_file, FILE)
