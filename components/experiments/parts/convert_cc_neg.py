"""Converts CC-Neg's pickled annotations into the Parquet table that its benchmark reads, without running their code."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer

from components.core.system.errors import InputError, run_command
from components.core.system.project import start
from components.core.tables.files import atomic_file


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

    def command() -> None:
        print(f"{output}: {convert(source, output):,} rows")

    run_command(command)


if __name__ == "__main__":
    start(main)
