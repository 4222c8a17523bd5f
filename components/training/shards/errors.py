"""Samples that could not be used: counted, the first ones logged, too many stop the run."""

from __future__ import annotations

import logging
from collections import Counter

from components.core.errors import InputError
from components.training.shards.reader import RawSample
from components.training.shards.tar import Fault

_log = logging.getLogger(__name__)

ENOUGH = 1_000
"""Samples that must have been looked at before their share of errors means something."""

_LOGGED = 5


class ErrorCount:
    """Lost samples by reason.

    Args:
        most: the share of lost samples above which the run stops.
    """

    def __init__(self, most: float) -> None:
        self.reasons: Counter[str] = Counter()
        self.samples = 0
        self._most = most

    def good(self) -> None:
        """A sample was used."""
        self.samples += 1

    def lost(self, sample: RawSample, fault: Fault) -> None:
        """A sample, or what stands for several, could not be used.

        Raises:
            InputError: too large a share is lost.
        """
        reason = str(fault)
        if self.reasons[reason] < _LOGGED:
            _log.warning("shard %s: sample %s is left out: %s", sample.shard, ascii(sample.key), reason)
        self.samples += sample.lost
        self.reasons[reason] += sample.lost
        total = self.reasons.total()
        if self.samples >= ENOUGH and total > self._most * self.samples:
            causes = ", ".join(f"{count} {name}" for name, count in self.reasons.most_common())
            raise InputError(
                f"{total} of {self.samples} samples cannot be used ({causes}; the last is {sample.key!a} in "
                f"{sample.shard}): fix the shards or raise max_error_share above {self._most}"
            )
