"""What the server tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from components.serving.served import Served

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "cliptune_requests", "Requests by route and status.", ("route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "cliptune_request_seconds",
            "Seconds from a request's head to the end of its answer, of texts that were embedded.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "cliptune_batch_texts", "Texts that were computed together.", buckets=_TEXTS, registry=self.registry
        )
        self.texts = Counter("cliptune_texts", "Texts that were answered.", registry=self.registry)
        self.dropped = Counter(
            "cliptune_dropped_requests", "Requests whose client left before its answer.", registry=self.registry
        )
        self.queue = Gauge("cliptune_queue_texts", "Texts that wait.", registry=self.registry)
        self.failures = Counter(
            "cliptune_model_load_failures",
            "New versions that were not taken, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self.refused = Gauge(
            "cliptune_model_refused", "1 while the alias points at a version that is not taken.", registry=self.registry
        )
        self._model = Gauge(
            "cliptune_model_info",
            "The version that answers.",
            ("model", "sha256", "image_tower_sha256"),
            registry=self.registry,
        )

    def serves(self, served: Served) -> None:
        """Tell which version answers from now on."""
        self._model.clear()
        self._model.labels(served.id, served.sha256, served.image_tower_sha256).set(1)

    def watch_queue(self, waiting: Callable[[], float]) -> None:
        """Ask for the queue's length whenever somebody looks."""
        self.queue.set_function(waiting)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
