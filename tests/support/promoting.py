"""A process of its own that promotes: `python -m tests.support.promoting <go> <ready>` in a project's folder.

It is ready when it has judged its candidate, and takes the registry's lock when the file `go` is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from components.core.settings import load_settings
from components.registry import promotion

_PATIENCE = 900.0


def main(go: Path, ready: Path) -> None:
    """Promote; print the decision as JSON."""
    take = promotion.promotion_lock

    def when_told(*arguments: Any) -> Any:
        ready.touch()
        end = time.monotonic() + _PATIENCE
        while not go.exists():
            if time.monotonic() > end:
                raise TimeoutError(go)
            time.sleep(0.01)
        return take(*arguments)

    promotion.promotion_lock = when_told
    print(promotion.promote(load_settings()).model_dump_json())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
