"""SemCLIP's rows of SugarCrepe++: `prepare.folder` is the folder of benchmark `sugar_crepe_pp`; see `semclip_cc_neg`.

After training on them, the benchmarks `sugar_crepe_pp` and `sugar_crepe_pp_semclip`, which score all rows, are not
valid: use `sugar_crepe_pp_semclip_released`. `prepare.heldout_testsets_dir` must not name a folder with SugarCrepe++,
or no training pair is left.
"""

from __future__ import annotations

from components.data.sources.semclip_cc_neg import SemclipFile, source_of
from components.data.test_sets.files import TestSetFiles
from components.data.test_sets.readers import sugar_crepe

SOURCE = source_of(
    SemclipFile(
        csv=sugar_crepe.CSV,
        rows=sugar_crepe.ROWS,
        tested=sugar_crepe.ROWS // 10,
        images="images",
        known_as="val2017",
        read=lambda folder: sugar_crepe.semclip_rows(TestSetFiles(folder))[0],
        image=lambda row: str(row["filename"]),
    )
)
