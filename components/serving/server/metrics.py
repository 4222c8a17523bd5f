"""Metrics of the server for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from components.serving.server.served import Served

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one server, in a separate registry."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        route_status, model = ("route", "status"), ("model", "sha256", "image_tower_sha256")
        seconds = "Seconds from a request's head to the end of its response, for embedded texts."
        dropped = "Requests whose client disconnected before the response."
        refused = "1 while the alias points at a version that is not served."
        self.requests = Counter("cliptune_requests", "Requests by route and status.", route_status, registry=own)
        self.seconds = Histogram("cliptune_request_seconds", seconds, buckets=_SECONDS, registry=own)
        self.batches = Histogram("cliptune_batch_texts", "Texts of a batch.", buckets=_TEXTS, registry=own)
        self.texts = Counter("cliptune_texts", "Embedded texts.", registry=own)
        unlike = "Texts unlike those that the encoder was trained and tested on; counted with --count-unlike."
        self.one_word = Counter("cliptune_one_word_texts", "Texts of one word.", registry=own)
        self.unlike = Counter("cliptune_unlike_texts", unlike, registry=own)
        self.dropped = Counter("cliptune_dropped_requests", dropped, registry=own)
        self.queue = Gauge("cliptune_queue_texts", "Waiting texts.", registry=own)
        self.failures = Counter(
            "cliptune_model_load_failures", "New versions that were not served, by reason.", ("reason",), registry=own
        )
        self.refused = Gauge("cliptune_model_refused", refused, ("alias",), registry=own)
        self._model = Gauge("cliptune_model_info", "The served version.", model, registry=own)

    def serves(self, served: Served) -> None:
        """Set the served version."""
        self._model.clear()
        self._model.labels(served.id, served.sha256, served.image_tower_sha256).set(1)
