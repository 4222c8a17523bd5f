"""Spans of OpenTelemetry; without a provider, as by default, they record nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec

from opentelemetry import propagate, trace

from components.core.system.errors import InputError

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's own variable: where spans are sent, such as http://127.0.0.1:4318."""
_PACKAGE = "opentelemetry.exporter.otlp.proto.http"


def span(
    name: str, caller: Mapping[str, str] | None = None, **attributes: str | int
) -> AbstractContextManager[trace.Span]:
    """A span of this block; `caller` holds headers, whose `traceparent` becomes its parent."""
    context = None if caller is None else propagate.extract(caller)
    return trace.get_tracer("cliptune").start_as_current_span(name, context=context, attributes=attributes)


@contextmanager
def exported_spans() -> Iterator[None]:
    """Send this process's spans to OTEL_EXPORTER_OTLP_ENDPOINT if it is set."""
    if not os.environ.get(ENDPOINT):
        yield
        return
    if find_spec("opentelemetry.exporter.otlp") is None or find_spec(_PACKAGE) is None:
        raise InputError(f"{ENDPOINT} is set, and its exporter is missing: run `make .venv/.ready`, which installs it")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "cliptune"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
