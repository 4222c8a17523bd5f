"""Spans reach a collector where one is named, below the caller's span; otherwise nothing is sent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from components.core.system.errors import InputError
from components.serving import traces
from components.serving.traces import ENDPOINT, exported_spans, span

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_PROGRAM = f"""
from components.serving.traces import exported_spans, span
with exported_spans(), span("outer", {{"traceparent": "00-{TRACE}-{PARENT}-01"}}, texts=3), span("inner"):
    pass
"""


def test_spans_are_sent_below_the_callers() -> None:
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = os.environ | {ENDPOINT: f"http://127.0.0.1:{server.server_port}"}
        environment["OTEL_EXPORTER_OTLP_COMPRESSION"] = "none"
        subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=True, timeout=60)
        server.shutdown()
    spans = {}
    for body in received:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            spans |= {one.name: one for scope in resource.scope_spans for one in scope.spans}
    assert set(spans) == {"outer", "inner"}
    assert (spans["outer"].trace_id.hex(), spans["outer"].parent_span_id.hex()) == (TRACE, PARENT)
    assert spans["inner"].parent_span_id == spans["outer"].span_id
    assert spans["outer"].attributes[0].value.int_value == 3


def test_without_a_collector_nothing_is_recorded_and_without_the_exporter_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    with exported_spans(), span("nothing") as current:
        assert not current.is_recording()
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setattr(traces, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"its exporter is missing: run `make .venv/.ready`"), exported_spans():
        pass
