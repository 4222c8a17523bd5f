"""Stands in for wandb in open_clip_train's process: appends the logged values to `$TRAINING_RECORD`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping


def log(data: Mapping[str, float], step: int) -> None:
    """Append one step's figures, unrounded, and the processor time so far as a line of JSON."""
    with open(os.environ["TRAINING_RECORD"], "a", encoding="utf-8") as record:
        record.write(json.dumps({"step": step, "processor_seconds": time.process_time(), **data}) + "\n")


def init(*_: object, **__: object) -> None:
    """Nothing to set up, to save or to finish."""


save = finish = init
