"""CC-Neg: does an image prefer its caption to the same caption negated? Two protocols that share the images.

`cc_neg` is that of CoN-CLIP (Singh et al. 2025; github.com/jaisidhsingh/CoN-CLIP): the last 40,000 rows by position,
commas removed from the negated caption only, `argmax` over [true, negated], so that a tie is right.

`cc_neg_semclip` is that of SemCLIP (arXiv 2511.16527): a random tenth of its own file, see
`components.data.test_sets.readers.cc_neg`. Its images are squashed and have ImageNet's mean, as in training. Values of
the two protocols are not comparable.

`python -m components.evaluation.benchmarks.published.cc_neg` converts CoN-CLIP's pickled annotations without running
their code.
"""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from components.core.system.errors import InputError, run_command
from components.core.system.project import start
from components.core.tables.files import atomic_file
from components.data.test_sets.readers import cc_neg
from components.encoders.adapter.images import SQUASHED
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.protocols.choices import (
    SEMCLIP_METRICS,
    at_least,
    group_numbers,
    row_cosine,
    semclip_scores,
)
from components.evaluation.scoring.published_context import PublishedContext


def score_con_clip(context: PublishedContext) -> Scores:
    """Share of images at least as close to the caption as to the negated one."""
    rows = cc_neg.read_table(context.folder / cc_neg.TABLE)
    context.expect(cc_neg.TABLE, len(rows), cc_neg.ROWS)
    tested = cc_neg.con_clip_test_rows(context, rows)
    images = context.image_files(cc_neg.IMAGES, map(cc_neg.picture_name, tested))
    (true,) = context.columns(tested, "caption")
    negated = context.texts([row["negated"].replace(",", "") for row in tested])
    return Scores({f"{cc_neg.CON_CLIP}/accuracy": at_least(row_cosine(images, true), row_cosine(images, negated))})


def score_semclip(context: PublishedContext) -> Scores:
    """Top-1 of originals and paraphrases, originals over negations, and their composite."""
    rows, tested = cc_neg.semclip_rows(context)
    if not tested:
        path = context.folder / cc_neg.CSV
        raise InputError(f"{path} has {len(rows)} rows, of which a tenth is tested: fetch all of it")
    if len(rows) != cc_neg.ROWS and len(tested) != cc_neg.HELD_OUT:
        context.expect(cc_neg.CSV, len(rows), cc_neg.ROWS)
    names = [cc_neg.semclip_picture_name(row) for row in tested]
    images = context.image_files(cc_neg.IMAGES, names, SQUASHED)
    texts = context.columns(tested, "caption", "paraphrased", "negation")
    return semclip_scores(cc_neg.SEMCLIP, group_numbers(names), images, *texts)


BENCHMARKS = (
    Benchmark(
        name=cc_neg.CON_CLIP,
        version=1,
        protocol="CoN-CLIP's released code: last 40,000 rows, no commas in the negated caption, ties right",
        citation='Learning the power of "no" (arXiv 2403.20312)',
        folder=cc_neg.FOLDER,
        needs=cc_neg.CON_CLIP_FILES,
        metrics=metrics("a tie is right", "accuracy"),
        score=score_con_clip,
    ),
    Benchmark(
        name=cc_neg.SEMCLIP,
        version=3,
        protocol="SemCLIP's released code: a tenth of the rows by seed 42, squashed images; composite of equation 8",
        citation="SemCLIP (arXiv 2511.16527)",
        folder=cc_neg.FOLDER,
        needs=cc_neg.SEMCLIP_FILES,
        metrics=SEMCLIP_METRICS,
        score=score_semclip,
    ),
)


def convert(source: Path, output: Path) -> int:
    """Write `output` from `ccneg_preprocessed.pt`, rows in the file's order; returns their number.

    The file is `{"image_paths": [...], "annotations": [{"json": {"caption"}, "sop_data": {"negative-prompt"}}]}`
    (github.com/jaisidhsingh/CoN-CLIP, src/data/evaluation_datasets.py). torch's loader for plain data reads it,
    which cannot run code. Only the file names of the authors' image paths are kept.
    """
    content = _plain(source)
    try:
        paths, annotations = list(content["image_paths"]), list(content["annotations"])
        columns = {
            "image_path": [Path(path).name for path in paths],
            "caption": [annotation["json"]["caption"] for annotation in annotations],
            "negated": [annotation["sop_data"]["negative-prompt"] for annotation in annotations],
        }
        table = pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))
    except (KeyError, TypeError, pa.ArrowException) as error:
        raise InputError(f"{source} does not have the layout of CC-Neg's annotations ({error!r}): fetch them") from None
    with atomic_file(output) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    return len(paths)


def _plain(source: Path) -> Any:
    import torch

    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise InputError(
            f"{source} is damaged or holds more than plain data, which could run code: fetch the original"
        ) from None
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{source} is missing or damaged ({reason}): fetch it again") from None


def main(
    source: Annotated[Path, typer.Argument(help="ccneg_preprocessed.pt as its authors publish it.")],
    output: Annotated[Path, typer.Argument(help="The table to write: cc_neg.parquet in the benchmark's folder.")],
) -> None:
    """Turn CC-Neg's pickled annotations into the table that the benchmark cc_neg reads."""
    run_command(lambda: print(f"{output}: {convert(source, output):,} rows"))


if __name__ == "__main__":
    start(main)
