"""Checks that S3 accepts the credentials, where anything of this installation lies there."""

from __future__ import annotations

from components.core.storage import S3
from components.doctor.check import Check, Finding, Surroundings, not_used, ok

_NAMES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN")


def _examine(around: Surroundings) -> Finding:
    shards = around.loaded.train.shards if around.loaded is not None else None
    url = shards.urls if shards is not None and shards.urls.startswith("s3://") else ""
    if not url and not any(around.environment.get(name) for name in _NAMES):
        return not_used("no shards in S3 and no AWS_ variables")
    store = S3(hurry=True)
    where = around.environment.get("AWS_ENDPOINT_URL_S3") or around.environment.get("AWS_ENDPOINT_URL") or "Amazon S3"
    if url:
        store.check_bucket(url)
        return ok(f"{where}: train.shards.urls can be reached")
    return ok(f"{where}: {len(store.buckets())} buckets")


CHECK = Check("S3", 7, _examine)
