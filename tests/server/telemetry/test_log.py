"""The log: a JSON object a line, whatever a caller calls himself."""

import errno
import io
import json
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.fakes import until

from npucall_server.telemetry import log as log_module
from npucall_server.telemetry.log import LibraryLines, Log, Record


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written, each line on its own."""
    text = stream.getvalue()
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.split("\n")[:-1]]


HOSTILE = st.text() | st.sampled_from(
    ['"', "\\", "\n", "\r\n", '", "reason": "OK', "\0", "\x1b[2J", "\u2028", "\x85", "😀", "\ud800"]
)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_a_line_is_json_whatever_stands_in_it(request_id: str, operator: str, error: str) -> None:
    stream = io.StringIO()
    record = Record("Execute", request_id, "ipv4:127.0.0.1:9")
    record.operator, record.variant = operator, operator
    record.reason, record.message, record.traceback = "INTERNAL", error, error + "!"
    record.driver_message = error
    Log(stream=stream).call(record)
    (line,) = lines(stream)
    assert line["request_id"] == request_id
    assert (line["operator"], line["variant"]) == (operator, operator)
    assert (line["message"], line["traceback"]) == (error, error + "!")
    assert line.get("driver_message", "") == error


def test_the_line_of_a_call_has_every_field_of_the_record() -> None:
    stream = io.StringIO()
    record = Record(
        "Execute", "id", "peer", "tenant", "caller", "op", "variant",
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 12,
        "QUEUE_FULL", "full", "EZ1001: full", "at", "00-1-2-01", "frames",
    )  # fmt: skip
    Log(stream=stream).call(record)
    (line,) = lines(stream)
    del line["time"]
    assert line.pop("event") == "call"
    inside = {"time_ns", "told_ns"}
    assert line == {n: getattr(record, n) for n in record.__slots__ if n not in inside}


def test_lines_of_calls_may_wait_for_each_other() -> None:
    stream, log = deferred()
    names = [f"id-{number}" for number in range(100)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: log.call(Record("Execute", name, "peer")), names))
    until(lambda: len(lines(stream)) == 100, "all are written")
    assert sorted(line["request_id"] for line in lines(stream)) == sorted(names)
    log.call(Record("Execute", "later", "peer"))
    until(lambda: len(lines(stream)) == 101, "one that comes after a while is written too")


def test_calls_failures_and_events_are_written_in_the_order_in_which_they_happened() -> None:
    stream, log = deferred(delay=3600)
    log.call(Record("Execute", "first", "peer"))
    log.event("draining")
    log.call(Record("Execute", "second", "peer", reason="DEADLINE"))
    between = datetime.now(UTC)
    assert lines(stream) == []
    assert log.flush()
    first, event, second = lines(stream)
    assert (first["request_id"], event["event"]) == ("first", "draining")
    assert second["request_id"] == "second"
    assert datetime.fromisoformat(first["time"]) <= between  # not that of the writing


def test_what_is_too_much_to_wait_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_MOST_WAITING", 2)
    monkeypatch.setattr(log_module, "_ROOM_FOR_EVENTS", 1)
    stream, log = deferred(delay=3600)
    for name in "a", "b", "c", "d":
        log.call(Record("Execute", name, "peer", reason="DEADLINE" if name == "d" else "OK"))
    log.event("draining")  # which has room of its own
    log.event("stopped")
    assert log.flush()
    a, b, event, dropped = lines(stream)
    assert (a["request_id"], b["request_id"], event["event"]) == ("a", "b", "draining")
    assert (dropped["event"], dropped["lines"]) == ("log lines dropped", 3)
    log.call(Record("Execute", "e", "peer"))
    assert log.flush()
    assert lines(stream)[4]["request_id"] == "e"  # and said once


def test_a_pipe_that_is_read_late_has_every_line_or_its_count() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        log = Log(stream=stream, delay=0.001)
        for number in range(3 * log_module._MOST_WAITING):
            log.call(Record("Execute", f"id-{number}", "peer"))
        assert not log.flush(0.01)  # the pipe is full
        text = b""
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            while b"last" not in text:
                text += pipe.read(2**20)
                log.event("last")
    found = [json.loads(line) for line in text.split(b"\n")[:-1]]
    calls = [line["request_id"] for line in found if line["event"] == "call"]
    dropped = sum(line["lines"] for line in found if line["event"] == "log lines dropped")
    assert dropped > 0
    assert len(calls) + dropped >= 3 * log_module._MOST_WAITING  # events may be among the dropped
    assert calls == sorted(calls, key=lambda name: int(name[3:]))


def test_what_could_not_be_written_is_counted_once_it_can_be() -> None:
    stream = Failing()
    log = Log(stream=stream)
    for _ in range(3):
        log.event("serving")
    stream.full = False
    log.event("draining")
    event, dropped = lines(stream)
    assert (event["event"], dropped["lines"]) == ("draining", 3)


class Failing(io.StringIO):
    """A file on a disk that is full for some time."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        return super().write(text)


def test_what_libraries_say_is_an_event_of_the_log() -> None:
    stream = io.StringIO()
    logger = logging.Logger("grpc")  # noqa: LOG001  # one of its own
    logger.addHandler(LibraryLines(Log(stream=stream)))
    logger.info("fine")
    logger.warning("odd: %s", "x")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["message"]) == ("warning", "grpc", "odd: x")


def test_a_line_is_ascii_so_that_no_terminal_obeys_it() -> None:
    stream = io.StringIO()
    name = "a\x1b[2J\x7f\x9b\u202e\u2066\u200f\ue000é"
    Log(stream=stream).call(Record("Execute", *[name] * 5, reason="X", message=name))
    assert re.fullmatch(r"[ -~]*\n", stream.getvalue())
    assert lines(stream)[0]["operator"] == name


def deferred(delay: float = 0.001) -> tuple[io.StringIO, Log]:
    stream = io.StringIO()
    return stream, Log(stream=stream, delay=delay)


def test_a_call_on_no_hardware_has_no_phases_of_hardware_in_its_line() -> None:
    stream = io.StringIO()
    Log(stream=stream).call(Record("Execute", "id", "peer", run_ns=7))
    (line,) = lines(stream)
    assert line["run_ns"] == 7
    assert not line.keys() & {"copy_in_ns", "plan_ns", "copy_out_ns"}


def test_the_setting_says_which_calls_get_a_line() -> None:
    settings: dict[Literal["all", "errors", "slow"], list[str]] = {
        "all": ["fast", "slow", "failed"], "slow": ["slow", "failed"], "errors": ["failed"],
    }  # fmt: skip
    for calls, logged in settings.items():
        stream = io.StringIO()
        log = Log(calls, stream=stream)
        log.call(Record("Execute", "fast", "", total_ns=999_999_999))
        log.call(Record("Execute", "slow", "", total_ns=1_000_000_000))
        log.call(Record("Execute", "failed", "", reason="TENSOR_LAYOUT", message="no"))
        assert [line["request_id"] for line in lines(stream)] == logged


@given(st.dictionaries(st.text().filter(lambda key: key not in ("event", "self")), st.text()))
def test_an_event_is_json_with_its_facts(facts: dict[str, str]) -> None:
    stream = io.StringIO()
    Log(stream=stream).event("draining", **{**facts, "calls": 3})
    (line,) = lines(stream)
    assert line.items() >= {**facts, "event": "draining", "calls": 3}.items()


class Broken(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_log_that_nobody_reads_breaks_nothing() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in Broken(), closed:
        Log(stream=stream).event("serving")
        Log(stream=stream).call(Record("Plan", "id", "peer"))


def test_a_log_without_standard_error_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)  # as Python has it where descriptor 2 was closed
    Log().event("serving")


def test_lines_of_many_threads_stay_whole(tmp_path: Any) -> None:
    path = tmp_path / "log"
    with path.open("w") as stream, ThreadPoolExecutor(8) as pool:
        log = Log(stream=stream)  # a real file: larger than its buffer, line by line
        records = [Record("Execute", f"{n}-" + "x" * 5000, "peer") for n in range(400)]
        list(pool.map(log.call, records))
    written = [json.loads(line)["request_id"] for line in path.read_text().splitlines()]
    assert sorted(written) == sorted(record.request_id for record in records)
