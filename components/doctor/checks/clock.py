"""Checks that this machine's clock agrees with the servers': leases, schedules and S3's signatures depend on it."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import httpx

from components.doctor.check import SECONDS, Check, Finding, Surroundings, fail, not_used, ok, warn
from components.doctor.web import prefect_url
from components.tracking import tracking_uri

_WARN, _FAIL = 5.0, 300.0
"""Seconds; S3 refuses requests that are fifteen minutes off."""
_MEND = "set the clock by NTP: `timedatectl set-ntp true`"


def _examine(around: Surroundings) -> Finding:
    servers = (
        f"{prefect_url(around.environment)}/health",
        tracking_uri(),
        around.environment.get("AWS_ENDPOINT_URL_S3", ""),
    )
    offsets = {url: offset for url in servers if url.startswith("http") and (offset := _offset(url)) is not None}
    if not offsets:
        return not_used("no server to compare with")
    url, worst = max(offsets.items(), key=lambda item: abs(item[1]))
    detail = f"{abs(worst):.0f} s {'behind' if worst > 0 else 'ahead of'} {url}"
    if abs(worst) > _FAIL:
        return fail(detail, _MEND)
    return warn(detail, _MEND) if abs(worst) > _WARN else ok("agrees with the servers")


def _offset(url: str) -> float | None:
    """How many seconds a server is ahead of us; None when it does not say."""
    try:
        asked = time.time()
        answer = httpx.get(url, timeout=SECONDS)
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx.HTTPError, KeyError, ValueError):
        return None
    # The answer was dated at some moment between, and without fractions.
    now = time.time()
    return 0.0 if asked - 1 <= theirs <= now else (theirs - now if theirs > now else theirs - asked)


CHECK = Check("clock", 12, _examine)
