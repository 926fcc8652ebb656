"""Metrics: what is counted, and what Prometheus gets."""

import io
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from tests.certificates import Authority, Pair
from tests.server.fakes import PATIENCE, FakeDevice, until
from tests.server.serving import Served, serving
from tests.server.sessions.raw import sessions

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_server.devices import open_device
from npucall_server.devices.base import DeviceFacts
from npucall_server.metrics import declared
from npucall_server.metrics.counters import Counters, MetricSample
from npucall_server.metrics.declared import METRICS
from npucall_server.metrics.exposition import Exposition
from npucall_server.metrics.gauges import Gauges
from npucall_server.serving.tls import Certificates
from npucall_server.sessions.digests import DIGEST_BYTES
from npucall_server.settings.addresses import Security
from npucall_server.settings.server import ServerSettings
from npucall_server.telemetry.log import FRAMES, GRPC, Log, Record

KL = "aclnnKlDivBackward"
ONE = np.ones(1, np.float32)


def call(
    operator: str = KL,
    tenant: str = "vision",
    reason: str = "OK",
    method: str = "Execute",
    carrier: str = GRPC,
    **ns: int,
) -> Record:
    return Record(
        method, "a name", "a peer", tenant, "ann", operator, request_bytes=100, response_bytes=40,
        reason=reason, carrier=carrier, **ns,
    )  # fmt: skip


def values(samples: Iterable[MetricSample], metric: declared.Metric) -> dict[tuple[str, ...], Any]:
    return {sample.labels: sample.value for sample in samples if sample.metric is metric}


def scraped(address: str, tls: ssl.SSLContext | None = None) -> dict[str, dict[str, float]]:
    """The samples of a scrape by name, then by what their labels say."""
    scheme = "https" if tls else "http"
    with urllib.request.urlopen(
        f"{scheme}://{address}/metrics", timeout=PATIENCE, context=tls
    ) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_calls_are_counted_by_method_operator_tenant_carrier_and_reason() -> None:
    """Operators that the device does not know share a series."""
    counters = Counters([KL])
    for record in call(), call(), call(reason="QUEUE_FULL"), call(tenant="audio", method="Plan"):
        counters.called(record)
    counters.called(call(carrier=FRAMES))
    for number in range(100):
        counters.called(call(f"nonsense {number}", reason="OPERATOR_UNKNOWN"))
    assert values(counters.samples(), declared.CALLS) == {
        ("Execute", KL, "vision", "grpc", "OK"): 2,
        ("Execute", KL, "vision", "frames", "OK"): 1,
        ("Execute", KL, "vision", "grpc", "QUEUE_FULL"): 1,
        ("Plan", KL, "audio", "grpc", "OK"): 1,
        ("Execute", "", "vision", "grpc", "OPERATOR_UNKNOWN"): 100,
    }


def test_bytes_and_device_time_are_sums_over_methods() -> None:
    counters = Counters([KL])
    counters.called(call(device_ns=500_000_000))
    counters.called(call(method="Plan", device_ns=250_000_000))
    samples = counters.samples()
    assert values(samples, declared.REQUEST_BYTES) == {(KL, "vision"): 200}
    assert values(samples, declared.RESPONSE_BYTES) == {(KL, "vision"): 80}
    assert values(samples, declared.DEVICE_SECONDS) == {(KL, "vision"): 0.75}


def test_a_time_counts_in_the_first_bucket_whose_bound_it_does_not_pass() -> None:
    counters = Counters([KL])
    for total in 10_000, 10_001, 300_000_000_000, 300_000_000_001:
        counters.called(call(total_ns=total))
    read = values(counters.samples(), declared.CALL_SECONDS)[(KL,)]
    assert [(place, count) for place, count in enumerate(read.counts) if count] == [
        (0, 1), (1, 1), (22, 1), (23, 1),
    ]  # fmt: skip
    assert read.seconds == pytest.approx(600.000020002)


def test_calls_that_did_not_run_have_no_times() -> None:
    counters = Counters([KL])
    counters.called(call(reason="QUEUE_FULL", total_ns=5))
    counters.called(call(method="Plan", total_ns=5))
    assert values(counters.samples(), declared.CALL_SECONDS) == {}
    assert values(counters.samples(), declared.PHASE_SECONDS) == {}


def test_phases_that_only_an_npu_has_are_shown_where_there_are_any() -> None:
    counters = Counters([KL, "aclnnGelu"])
    counters.called(call(queue_ns=1, run_ns=2))
    counters.called(call("aclnnGelu", queue_ns=1, run_ns=2, plan_ns=3, copy_in_ns=4, copy_out_ns=5))
    assert list(values(counters.samples(), declared.PHASE_SECONDS)) == [
        (KL, "queue"), (KL, "run"),
        ("aclnnGelu", "queue"), ("aclnnGelu", "run"), ("aclnnGelu", "plan"),
        ("aclnnGelu", "copy_in"), ("aclnnGelu", "copy_out"),
    ]  # fmt: skip


def test_names_obey_the_conventions_of_prometheus() -> None:
    for metric in METRICS:
        assert metric.name.startswith("npucall_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.kind != "histogram" or metric.name.endswith(("_seconds", "_bytes"))
        assert metric.meaning.endswith(".")


def test_no_two_metrics_have_the_same_series() -> None:
    series = [name for metric in METRICS for name in metric.series]
    assert len(series) == len(set(series)) > len(METRICS)


def gauges_of(served: Served) -> list[MetricSample]:
    gauges = Gauges(
        served.executor, served.streams.places, served.regions, served.sessions, served.digests,
        served.gate, lambda: True,
    )  # fmt: skip
    return list(gauges.samples())


def test_gauges_of_a_server_at_rest() -> None:
    with serving() as served:
        samples = gauges_of(served)
    found = {sample.metric.name: sample.value for sample in samples}
    assert {name for name, value in found.items() if value == 0} == {
        "npucall_calls_in_flight", "npucall_calls_running", "npucall_calls_waiting",
        "npucall_bytes_in_flight", "npucall_working_bytes", "npucall_shared_memory_bytes",
        "npucall_streams", "npucall_reserved", "npucall_reservation_waiting",
        "npucall_sessions", "npucall_handle_bytes", "npucall_digest_bytes",
        "npucall_digest_hits_total", "npucall_digest_misses_total",
        "npucall_ended_without_drain_total", "npucall_slowed_callers",
    }  # fmt: skip
    assert found["npucall_serving"] == 1


def test_gauges_have_what_callers_left_on_the_server() -> None:
    data = b"kept" * 100
    settings: Any = {"memory_limit": 1 << 26, "handle_memory": 1 << 20}
    with serving(**settings) as served, sessions(served.target) as asker:
        asker.open()
        asker.put(b"a" * 16, data, digest=sha256(data).digest())
        asker.missing(sha256(data).digest(), b"0" * 32)
        samples = gauges_of(served)
        asker.close()
    found = {sample.metric: sample.value for sample in samples}
    assert found[declared.SESSIONS] == 1
    assert found[declared.HANDLE_BYTES] == len(data)
    assert found[declared.HANDLE_LIMIT] == 1 << 20
    assert found[declared.DIGEST_BYTES] == len(data) + DIGEST_BYTES
    assert (found[declared.DIGEST_HITS], found[declared.DIGEST_MISSES]) == (1, 1)


class _TellingDevice(FakeDevice):
    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            memory_total_bytes=100, memory_free_bytes=40, cube_percent=75, healthy=False
        )


def test_gauges_have_what_a_device_tells_and_nothing_else() -> None:
    with serving(_TellingDevice()) as served:
        samples = gauges_of(served)
    assert values(samples, declared.DEVICE_MEMORY) == {("free",): 40, ("used",): 60}
    assert values(samples, declared.DEVICE_UTILIZATION) == {("cube",): 0.75}
    assert values(samples, declared.DEVICE_HEALTHY) == {(): False}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    cpu = open_device(ServerSettings(), print)
    with serving(cpu, metrics_listen="127.0.0.1:0") as server:
        with npucall_client.connect(server.target) as client:
            for _ in range(3):
                client.run(l1_loss_backward, ONE, ONE, ONE)
        # A call is answered before it is counted, and counted before it has its line.
        until(lambda: len(executed(server)) == 3, "its calls are counted")
        yield server


def executed(server: Served) -> list[dict[str, Any]]:
    return [line for line in server.events("call") if line["method"] == "Execute"]


def metrics_of(server: Served) -> str:
    (serving,) = server.events("serving")
    return str(serving["metrics"])


def test_a_scrape_shows_what_was_called(server: Served) -> None:
    shown = scraped(metrics_of(server))
    labels = "carrier=frames,method=Execute,operator=aclnnL1LossBackward,reason=OK,tenant="
    assert shown["npucall_calls_total"][labels] == 3
    assert shown["npucall_call_seconds_count"]["operator=aclnnL1LossBackward"] == 3
    assert shown["npucall_call_seconds_bucket"]["le=+Inf,operator=aclnnL1LossBackward"] == 3
    assert shown["npucall_phase_seconds_count"]["operator=aclnnL1LossBackward,phase=run"] == 3
    assert shown["npucall_serving"] == {"": 1}
    assert shown["process_open_fds"][""] > 0


def test_every_metric_that_a_cpu_has_is_shown(server: Served) -> None:
    of_servers = [each for each in METRICS if not each.name.startswith("npucall_directory_")]
    names = {name for metric in of_servers for name in metric.series}
    assert names - set(scraped(metrics_of(server))) == {
        "npucall_device_memory_bytes", "npucall_device_utilization_ratio",
        "npucall_device_healthy",
    }  # fmt: skip


@pytest.mark.more
def test_peers_that_say_nothing_do_not_keep_others_from_scraping(server: Served) -> None:
    host, _, port = metrics_of(server).rpartition(":")
    with ExitStack() as silent:
        for _ in range(12):
            silent.enter_context(socket.create_connection((host, int(port)), PATIENCE))
        assert scraped(metrics_of(server))["npucall_serving"] == {"": 1}


def trusting(pair: Pair) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=pair.certificate.with_name("ca.pem"))


@contextmanager
def exposed(pair: Pair, client_ca: Path | None = None) -> Iterator[str]:
    """The address of an exposition over TLS."""
    certificates = Certificates(pair.certificate, pair.key, client_ca, Log(stream=io.StringIO()))
    tls = partial(certificates.context, Security.MTLS if client_ca else Security.TLS)
    exposition = Exposition("127.0.0.1", 0, [lambda: [MetricSample(declared.SERVING, (), 1)]], tls)
    try:
        yield f"127.0.0.1:{exposition.port}"
    finally:
        exposition.close()


def test_metrics_are_shown_over_tls_with_the_certificate_of_the_moment(tmp_path: Path) -> None:
    pair = Authority(tmp_path).server()
    old = trusting(pair)
    with exposed(pair) as address:
        assert scraped(address, old)["npucall_serving"] == {"": 1}
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            scraped(address)
        Authority(tmp_path).server()
        new = trusting(pair)
        assert scraped(address, new)["npucall_serving"] == {"": 1}
        pair.key.write_text("half of a key")
        assert scraped(address, new)["npucall_serving"] == {"": 1}


def test_who_scrapes_needs_a_certificate_where_callers_do(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.server(), authority.client("scraper")
    client = trusting(pair)
    with exposed(pair, authority.ca) as address:
        with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
            scraped(address, client)
        client.load_cert_chain(own.certificate, own.key)
        assert scraped(address, client)["npucall_serving"] == {"": 1}


def test_metrics_that_everybody_can_reach_are_a_warning() -> None:
    with serving(metrics_listen="0.0.0.0:0") as server:
        (warning,) = server.events("warning")
    assert warning["message"].startswith("everybody who reaches 0.0.0.0:")


def test_an_address_of_another_kind_is_refused() -> None:
    for address in "9090", "unix:/run/metrics", "127.0.0.1:65536", ":9090":
        with pytest.raises(ValidationError, match="expected HOST:PORT"):
            ServerSettings(metrics_listen=address)
