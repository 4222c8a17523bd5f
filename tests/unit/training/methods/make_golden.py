"""Write tests/golden/losses.json anew; only when a loss is meant to change.

python -m tests.unit.training.methods.make_golden
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.training.methods.examples import CASES, columns_of, configured, losses_of, random_columns

GOLDEN = Path(__file__).parents[3] / "golden" / "losses.json"


def golden_losses() -> dict[str, dict[str, float]]:
    """Losses by name of every case on its random columns."""
    found = {}
    for name, entry in CASES.items():
        losses = losses_of(entry, random_columns(columns_of(configured(entry))))
        found[name] = {term: round(value, 8) for term, value in losses.items()}
    return found


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_losses(), indent=2) + "\n", encoding="utf-8")
