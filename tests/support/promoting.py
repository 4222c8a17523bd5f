"""A process of its own that promotes: `python -m tests.support.promoting <go> <ready>` in a project's folder.

It creates `ready` when it has judged its candidate, and takes the registry's lock once the file `go` exists.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from components.core.settings import load_settings
from components.registry import promotion
from tests.support.waiting import wait_until


def main(go: Path, ready: Path) -> None:
    take = promotion.promotion_lock

    def when_allowed(*arguments: Any) -> Any:
        ready.touch()
        wait_until(go.exists, 900)
        return take(*arguments)

    promotion.promotion_lock = when_allowed
    print(promotion.promote(load_settings()).model_dump_json())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
