"""The two prompt tasks' answers as one row per (pair, sample), nothing lost."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from components.errors import InputError
from components.records import GENERATIONS, PAIRS

_KEYS = ["id", "sample"]


def join_answers(paraphrase_1: Path, paraphrase_2: Path, pairs: Path) -> pd.DataFrame:
    """Columns row, id, sample, caption, paraphrase_1, paraphrase_2, rejected_1, rejected_2, facts.

    `rejected_*` says why the synthesize stage has no usable answer, None where it has one.

    Raises:
        InputError: a table is missing, damaged or empty, or the tables do not belong together.
    """
    first, second = _answers(paraphrase_1, 1), _answers(paraphrase_2, 2)
    if first.empty:
        raise InputError(f"{paraphrase_1} has no rows: raise synthesize.captions and run `dvc repro`")
    joined = first.merge(second, on=_KEYS, how="left", indicator="found")
    if int((joined["found"] == "both").sum()) != len(second):
        raise InputError(f"{paraphrase_2} answers rows that {paraphrase_1} lacks: run `dvc repro` on both again")
    known = PAIRS.read(pairs, ["id", "caption", "facts"]).to_pandas().drop_duplicates("id")
    joined = joined.merge(known.rename(columns={"caption": "known"}), on="id", how="left")
    _refuse(joined, joined["known"] != joined["source_1"], f"{paraphrase_1} asks about a caption that {pairs} lacks")
    answered = joined["found"] == "both"
    stale = answered & (joined["source_2"] != joined["paraphrase_1"].fillna(joined["source_2"]))
    _refuse(joined, stale, f"{paraphrase_2} rewrites another text than {paraphrase_1} holds")
    unasked = ~answered & joined["rejected_1"].isna()
    joined["rejected_2"] = joined["rejected_2"].astype(object).mask(unasked, "never asked")
    joined = joined.rename(columns={"source_1": "caption"}).assign(row=range(len(joined)))
    columns = ["row", *_KEYS, "caption", "paraphrase_1", "paraphrase_2", "rejected_1", "rejected_2", "facts"]
    frame = joined[columns].astype(dict.fromkeys(columns[3:], object))
    return frame.where(frame.notna(), None)


def _answers(path: Path, position: int) -> pd.DataFrame:
    frame = GENERATIONS.read(path).to_pandas().astype({"text": object, "reason": object})
    _refuse(frame, frame.duplicated(_KEYS), f"{path} has two answers for one row")
    answered = frame["text"].fillna("").str.strip() != ""
    reason = frame["reason"].fillna("no reason given").where(~frame["accepted"], "empty answer")
    return pd.DataFrame(
        {
            **{key: frame[key] for key in _KEYS},
            f"source_{position}": frame["source"],
            f"paraphrase_{position}": frame["text"].where(answered),
            f"rejected_{position}": reason.str.replace(";", ",").where(~(frame["accepted"] & answered)),
        }
    )


def _refuse(frame: pd.DataFrame, wrong: pd.Series[bool], fault: str) -> None:
    if wrong.any():
        row = frame[wrong].iloc[0]
        raise InputError(f"{fault} (id {row['id']}, sample {row['sample']}): run `dvc repro` on both again")
