"""What a server says, short to look at: each view has a message of the contract, and its fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from npucall.texts import duration, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    # For type checkers a view has the fields of its message, though nobody may inherit from one.
    from npucall.v1.access_service_pb2 import GetActivityResponse, GetUsageResponse
    from npucall.v1.operator_service_pb2 import GetServerInfoResponse, ListOperatorsResponse
    from npucall.v1.operator_service_pb2 import OperatorInfo as ListedOperator
else:
    GetActivityResponse = GetUsageResponse = GetServerInfoResponse = object
    ListedOperator = ListOperatorsResponse = object

M = TypeVar("M")


class View(Generic[M]):
    """A message of the contract, ``message``; a view has its fields, and equals it."""

    __slots__ = ("message",)

    def __init__(self, message: M) -> None:
        self.message = message

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "message":  # a copy that is not made yet
            raise AttributeError(name)
        return getattr(self.message, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.message == (other.message if isinstance(other, View) else other))

    __hash__ = None  # type: ignore[assignment]  # as messages

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._short()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from html import escape  # noqa: PLC0415  # few need it, and it costs every start

        head, *rows = [[escape(str(cell)) for cell in row] for row in self._rows()]
        lines = [_line("th", head), *(_line("td", row) for row in rows)]
        return f"<p>{escape(self._short())}</p><table>{''.join(lines)}</table>"

    def _short(self) -> str:
        """All of it in a line."""
        raise NotImplementedError

    def _rows(self) -> Iterable[Sequence[object]]:
        """The headings, then the rows of a table."""
        raise NotImplementedError


class ServerInfo(View["GetServerInfoResponse"], GetServerInfoResponse):  # type: ignore[misc]
    """What a server is and allows."""

    __slots__ = ()

    def _short(self) -> str:
        up = duration(self.uptime_seconds)
        return f"{self.server.device} as {self.server.soc}, npucall {self.version}, up {up}"

    def _rows(self) -> Iterator[Sequence[object]]:
        limits = self.limits
        yield "fact", "value"
        yield "device", self.server.device
        yield "SoC", f"{self.server.soc} (family {self.product})"
        yield "default variant", self.default_variant
        yield "version", self.version
        if limits.memory_limit:
            yield "memory", f"{size(self.bytes_in_flight)} of {size(limits.memory_limit)} in use"
            yield "calls", f"{self.calls_in_flight} in flight, {limits.queue_length} may wait"
        if self.caller.tenant:
            yield "known as", f"{self.caller.tenant}/{self.caller.name}"


class OperatorInfo(View["ListedOperator"], ListedOperator):  # type: ignore[misc]
    """An operator as a server lists it."""

    __slots__ = ()

    def _short(self) -> str:
        here = "" if self.available else f", not here: {self.unavailable_because}"
        names = ", ".join(each.name for each in self.parameters)
        return f"{f'{self.name} {self.variant}'.strip()}({names}){here}"

    def _rows(self) -> Iterator[Sequence[object]]:
        yield "parameter", "in C", "meaning"
        for each in self.parameters:
            yield each.name, f"{each.c_type} {each.c_name}".strip(), each.description


class ServerOperators(View["ListOperatorsResponse"], ListOperatorsResponse):  # type: ignore[misc]
    """The operators that a server lists: a sequence of ``OperatorInfo``."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.message.operators)

    def __iter__(self) -> Iterator[OperatorInfo]:
        return map(OperatorInfo, self.message.operators)

    def __getitem__(self, index: int) -> OperatorInfo:
        return OperatorInfo(self.message.operators[index])

    def _short(self) -> str:
        return f"{len(self)}, of which {sum(each.available for each in self)} run here"

    def _rows(self) -> Iterator[Sequence[object]]:
        yield "operator", "variant", "here", "what it computes"
        for each in self.message.operators:
            here = each.unavailable_because or "yes"
            yield each.name, each.variant, here, each.summary.replace("``", "")


class ServerUsage(View["GetUsageResponse"], GetUsageResponse):  # type: ignore[misc]
    """What callers used."""

    __slots__ = ()

    def _short(self) -> str:
        calls = sum(line.calls for line in self.lines)
        seconds = sum(line.device_seconds for line in self.lines)
        begin = datetime.fromtimestamp(self.since, UTC).isoformat(" ", "seconds")
        since = f" since {begin}" if self.since else ""
        return f"{calls:,} calls, {seconds:,.3f} s of the device, {len(self.lines)} lines{since}"

    def _rows(self) -> Iterator[Sequence[object]]:
        yield "tenant", "caller", "operator", "calls", "sent", "answered", "device s"
        for line in self.lines:
            who = line.tenant, line.caller, line.operator
            sizes = size(line.request_bytes), size(line.response_bytes)
            yield *who, line.calls, *sizes, f"{line.device_seconds:,.3f}"


class ServerActivity(View["GetActivityResponse"], GetActivityResponse):  # type: ignore[misc]
    """Who uses a server now."""

    __slots__ = ()

    def _short(self) -> str:
        turns = f"{self.running} of {self.lanes} turns taken, {self.waiting} calls wait"
        return f"{turns}, {len(self.callers)} callers"

    def _rows(self) -> Iterator[Sequence[object]]:
        yield "tenant", "caller", "calls", "holds", "device s/min"
        for line in self.callers:
            who = line.caller.tenant, line.caller.name
            yield *who, line.calls, size(line.bytes), f"{line.device_seconds:.2f}"


def _line(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
