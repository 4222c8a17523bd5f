"""Tell the Prefect server how many stages may compute on this machine's GPUs at once: one slot for each.

python -m infra.gpu_tokens
"""

from __future__ import annotations

import os

from prefect import get_client

from flows.gpus import DEFAULT_LIMIT, LIMIT, gpus


def main() -> None:
    """Set the global concurrency limit `gpu` to the number of GPUs here; nothing where there are none."""
    if found := gpus():
        with get_client(sync_client=True) as client:
            client.upsert_global_concurrency_limit_by_name(os.environ.get(LIMIT, DEFAULT_LIMIT), len(found))


if __name__ == "__main__":
    main()
