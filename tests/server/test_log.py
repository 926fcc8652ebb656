"""The log: a JSON object a line, whatever a caller calls himself."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npucall_server import log as log_module
from npucall_server.log import Log, Record

from .scripted import until


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
    Log(stream=stream).call(record)
    (line,) = lines(stream)
    assert line["request_id"] == request_id
    assert (line["operator"], line["variant"]) == (operator, operator)
    assert (line["message"], line["traceback"]) == (error, error + "!")


def test_the_line_of_a_call_has_every_field_of_the_record() -> None:
    stream = io.StringIO()
    record = Record(
        "Execute", "id", "peer", "op", "variant", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
        "QUEUE_FULL", "full", "EZ1001: full", "at",
    )  # fmt: skip
    Log(stream=stream).call(record)
    (line,) = lines(stream)
    del line["time"]
    assert line.pop("event") == "call"
    assert line == {n: getattr(record, n) for n in record.__slots__ if n != "time_ns"}


def test_lines_of_calls_may_wait_for_each_other() -> None:
    stream, log = deferred()
    names = [f"id-{number}" for number in range(100)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: log.call(Record("Execute", name, "peer")), names))
    until(lambda: len(lines(stream)) == 100, "all are written")
    assert sorted(line["request_id"] for line in lines(stream)) == sorted(names)


def test_a_line_that_comes_after_a_while_is_written_too() -> None:
    stream, log = deferred()
    for number in 1, 2, 3:
        log.call(Record("Execute", "id", "peer"))
        until(lambda number=number: len(lines(stream)) == number, "it is written")  # type: ignore[misc]


@pytest.mark.parametrize("then", ["event", "failure", "flush"])
def test_nothing_overtakes_a_line_that_waits(then: str) -> None:
    stream, log = deferred(delay=3600)
    log.call(Record("Execute", "first", "peer"))
    assert lines(stream) == []
    if then == "event":
        log.event("draining")
    elif then == "failure":
        log.call(Record("Execute", "second", "peer", reason="DEADLINE"))
    else:
        log.flush()
    first, *others = lines(stream)
    assert first["request_id"] == "first"
    assert len(others) == (then != "flush")


def test_the_time_of_a_line_is_that_of_the_call_not_of_the_writing() -> None:
    stream, log = deferred(delay=3600)
    log.call(Record("Execute", "first", "peer"))
    between = datetime.now(UTC)
    log.flush()
    assert datetime.fromisoformat(lines(stream)[0]["time"]) <= between


def test_no_more_than_a_few_thousand_lines_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_MOST_WAITING", 2)
    stream, log = deferred(delay=3600)
    for name in "a", "b", "c", "d":
        log.call(Record("Execute", name, "peer"))
    assert [line["request_id"] for line in lines(stream)] == ["a", "b", "c"]


def deferred(delay: float = 0.001) -> tuple[io.StringIO, Log]:
    stream = io.StringIO()
    return stream, Log(stream=stream, delay=delay)


def test_a_call_on_no_hardware_has_no_phases_of_hardware_in_its_line() -> None:
    stream = io.StringIO()
    Log(stream=stream).call(Record("Execute", "id", "peer", run_ns=7))
    (line,) = lines(stream)
    assert line["run_ns"] == 7
    assert not line.keys() & {"copy_in_ns", "plan_ns", "copy_out_ns"}


@given(HOSTILE)
def test_the_drivers_words_are_json_whatever_stands_in_them(words: str) -> None:
    stream = io.StringIO()
    record = Record("Execute", "id", "peer", reason="ARGUMENT_INVALID", driver_message=words)
    Log(stream=stream).call(record)
    (line,) = lines(stream)
    assert line.get("driver_message", "") == words


@pytest.mark.parametrize(
    ("calls", "logged"),
    [("all", ["fast", "slow", "failed"]), ("slow", ["slow", "failed"]), ("errors", ["failed"])],
)
def test_the_setting_says_which_calls_get_a_line(
    calls: Literal["all", "errors", "slow"], logged: list[str]
) -> None:
    stream = io.StringIO()
    log = Log(calls, slow_seconds=0.5, stream=stream)
    log.call(Record("Execute", "fast", "", total_ns=499_999_999))
    log.call(Record("Execute", "slow", "", total_ns=500_000_000))
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


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Broken(), closed()])
def test_a_log_that_nobody_reads_breaks_nothing(stream: io.StringIO) -> None:
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
