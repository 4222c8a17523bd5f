"""The answers of a synthesised table's tasks as one row per (pair, sample), nothing lost."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from components.errors import InputError
from components.records import GENERATIONS, PAIRS
from components.validation.table import Answer, Synthesised

_KEYS = ["id", "sample"]


def join_answers(table: Synthesised, folder: Path, pairs: Path) -> pd.DataFrame:
    """Columns row, id, sample, caption, facts, other_id, other_caption, other_facts, and two per answer.

    These are the answer itself and `rejected_<answer>`: why the synthesize stage has no usable answer, None where it
    has one. The `other_*` are None where the task asks about one caption.

    Args:
        table: what to join.
        folder: holds `<task>.parquet` for each of the table's tasks.
        pairs: the pairs that the tasks asked about.

    Raises:
        InputError: a table is missing, damaged or empty, or the tables do not belong together.
    """
    first, *later = table.answers
    path = folder / f"{first.task}.parquet"
    joined = _read(path, first).rename(columns={"source": "caption", "other_source": "other_caption"})
    if joined.empty:
        raise InputError(f"{path} has no rows: raise synthesize.captions and run `dvc repro`")
    joined = _with_facts(_with_facts(joined, path, pairs, ""), path, pairs, "other_")
    joined["rejected_caption"] = None
    for answer in later:
        joined = _with_answer(joined, path, folder / f"{answer.task}.parquet", answer)
    joined = joined.assign(row=range(len(joined)))
    texts = [name for name in joined.columns if name not in {"row", *_KEYS, "rejected_caption"}]
    frame = joined[["row", *_KEYS, *texts]].astype(dict.fromkeys(texts, object))
    known: pd.DataFrame = frame.where(frame.notna(), None)
    return known


def _read(path: Path, answer: Answer) -> pd.DataFrame:
    frame = GENERATIONS.read(path).to_pandas().astype({"text": object, "reason": object})
    _refuse(frame, frame.duplicated(_KEYS), f"{path} has two answers for one row")
    answered = frame["text"].fillna("").str.strip() != ""
    reason = frame["reason"].fillna("no reason given").where(~frame["accepted"], "empty answer")
    rows: pd.DataFrame = frame[[*_KEYS, "source", "other_id", "other_source"]].assign(
        **{
            answer.column: frame["text"].where(answered),
            f"rejected_{answer.column}": reason.str.replace(";", ",").where(~(frame["accepted"] & answered)),
        }
    )
    return rows


def _with_facts(joined: pd.DataFrame, path: Path, pairs: Path, prefix: str) -> pd.DataFrame:
    """Add `<prefix>facts`; the caption asked about must be the pair's own."""
    known = PAIRS.read(pairs, ["id", "caption", "facts"]).to_pandas().drop_duplicates("id")
    known = known.rename(columns={"id": f"{prefix}id", "caption": "known", "facts": f"{prefix}facts"})
    found = joined.merge(known, on=f"{prefix}id", how="left")
    wrong = found[f"{prefix}id"].notna() & (found["known"] != found[f"{prefix}caption"])
    _refuse(found, wrong, f"{path} asks about a caption that {pairs} lacks")
    return found.drop(columns="known")


def _with_answer(joined: pd.DataFrame, first: Path, path: Path, answer: Answer) -> pd.DataFrame:
    """Add a later answer, which must be about the text that stands in its source column."""
    rows = _read(path, answer).drop(columns=["other_id", "other_source"])
    found = joined.merge(rows, on=_KEYS, how="left", indicator="found")
    answered = found["found"] == "both"
    if int(answered.sum()) != len(rows):
        raise InputError(f"{path} answers rows that {first} lacks: run `dvc repro` on both again")
    stale = answered & (found["source"] != found[answer.source].fillna(found["source"]))
    _refuse(found, stale, f"{path} rewrites another text than {first} holds")
    # A source that was rejected explains itself why nothing was asked about it.
    unasked = ~answered & found[f"rejected_{answer.source}"].isna()
    rejected = f"rejected_{answer.column}"
    found[rejected] = found[rejected].astype(object).mask(unasked, "never asked")
    return found.drop(columns=["found", "source"])


def _refuse(frame: pd.DataFrame, wrong: pd.Series[bool], fault: str) -> None:
    if wrong.any():
        row = frame[wrong].iloc[0]
        raise InputError(f"{fault} (id {row['id']}, sample {row['sample']}): run `dvc repro` on both again")
