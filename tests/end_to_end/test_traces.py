"""Spans by OpenTelemetry: from the client over the server to the device as one trace.

Client, server and SDK run in a process of their own, since a provider is set once a process.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import wire

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
import sys

import numpy as np
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from tests.end_to_end.wire import server_here

x, large = np.ones(4, np.float32), np.ones(2**20, np.float32)
tracer = trace.get_tracer("the application")
with server_here() as server, npucall_client.connect(
    server.address, stream_from=2**20
) as client:
    with tracer.start_as_current_span("one call"):
        client.run(l1_loss_backward, x, x, x)
    with tracer.start_as_current_span("large"):
        client.run(l1_loss_backward, large, large, large)
    with tracer.start_as_current_span("pipeline"), client.pipeline() as pipeline:
        for future in [pipeline.submit(l1_loss_backward, x, x, x) for _ in range(3)]:
            future.result()
    with tracer.start_as_current_span("refused"):
        try:
            client.run(l1_loss_backward, x, x, x[:3])
        except NpucallError:
            pass
json.dump([json.loads(span.to_json()) for span in exporter.get_finished_spans()], sys.stdout)
"""


@pytest.fixture(scope="module")
def spans() -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, timeout=wire.PATIENCE, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def of_trace(spans: list[dict[str, Any]], root: str) -> list[dict[str, Any]]:
    """The spans of the trace that begins with a span of the application."""
    (first,) = [span for span in spans if span["name"] == root]
    trace = first["context"]["trace_id"]
    return [span for span in spans if span["context"]["trace_id"] == trace]


def tree(spans: list[dict[str, Any]], root: str) -> dict[str, Any]:
    """Names below names, in the order in which they began."""
    trace = sorted(of_trace(spans, root), key=lambda span: span["start_time"])
    (first,) = [span for span in trace if span["name"] == root]

    def below(span: dict[str, Any]) -> dict[str, Any]:
        own = span["context"]["span_id"]
        return {each["name"]: below(each) for each in trace if each["parent_id"] == own}

    return below(first)


PHASES = {"decode": {}, "check": {}, "device": {"run": {}}, "encode": {}}


def test_client_server_and_device_are_one_trace(spans: list[dict[str, Any]]) -> None:
    found = tree(spans, "one call")
    call = found["Execute aclnnL1LossBackward"]["Execute aclnnL1LossBackward"]
    call.pop("queue", None)  # where it had to wait
    assert found == {"Execute aclnnL1LossBackward": {"Execute aclnnL1LossBackward": PHASES}}
    ends = {span["kind"]: span for span in of_trace(spans, "one call") if "Exec" in span["name"]}
    assert set(ends) == {"SpanKind.CLIENT", "SpanKind.SERVER"}
    who = {
        "npucall.operator": "aclnnL1LossBackward",
        "npucall.caller": "ipv4:127.0.0.1",
        "rpc.method": "Execute",
    }
    assert ends["SpanKind.SERVER"]["attributes"].items() >= who.items()
    assert {end["attributes"]["rpc.system"] for end in ends.values()} == {"frames"}


@pytest.mark.more
def test_calls_on_streams_are_in_the_trace_of_the_span_that_they_were_made_in(
    spans: list[dict[str, Any]],
) -> None:
    """A large one has a stream of its own; in frames each call of a pipeline has one."""
    (below,) = tree(spans, "large").values()
    assert list(below) == ["ExecuteStream aclnnL1LossBackward"]
    names = [span["name"] for span in of_trace(spans, "pipeline")]
    assert names.count("Execute aclnnL1LossBackward") == 3


def test_spans_of_a_refused_call_say_why(spans: list[dict[str, Any]]) -> None:
    told = [
        (span["kind"], span["status"]["status_code"], span["attributes"]["npucall.reason"])
        for span in of_trace(spans, "refused")
        if span["kind"] != "SpanKind.INTERNAL"
    ]
    kinds = "SpanKind.CLIENT", "SpanKind.SERVER"
    assert sorted(told) == [(kind, "ERROR", "SHAPE_MISMATCH") for kind in kinds]


@pytest.mark.more
@pytest.mark.parametrize("lacks", ["nothing but a provider", "opentelemetry"])
def test_without_a_provider_or_opentelemetry_nothing_is_made(lacks: str) -> None:
    program = (
        f"import sys; sys.modules['{lacks}'] = None; "
        "from npucall_client.sending import tracing; "
        "from npucall_server.telemetry.traces import traces; "
        "print(tracing.spans(), traces('cpu'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "None None\n"
