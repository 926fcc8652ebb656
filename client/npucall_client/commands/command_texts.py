"""What ``npucall info`` and ``npucall operators`` say about a server and about an operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from npucall.dtypes import BY_WIRE
from npucall.errors import SettingError
from npucall.texts import did_you_mean, duration, size
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.commands.console import Column, output, show, table

UNVALIDATED = "no reference, unvalidated"
"""The text for an operator that nothing here can check."""

_ROLES = {pb.ROLE_INPUT: "in", pb.ROLE_OUTPUT: "out", pb.ROLE_INPUT_OUTPUT: "in/out"}
HEALTH = {pb.DEVICE_HEALTH_NORMAL: "normal", pb.DEVICE_HEALTH_ABNORMAL: "abnormal"}


_CARRIERS = {"frames": "in frames", "grpc": "over gRPC"}


def server_facts(answer: pb.GetServerInfoResponse, carrier: str) -> dict[str, str]:
    """What ``npucall info`` shows; a fact without text is not shown."""
    server, limits = answer.server, answer.limits
    return {
        "device": server.device,
        "SoC": f"{server.soc} (family {answer.product})",
        "default variant": answer.default_variant,
        "version": answer.version,
        "instance": f"{server.instance}, up for {duration(answer.uptime_seconds)}",
        "largest message": _size(limits.max_message_bytes),
        "memory limit": _size(limits.memory_limit),
        "queue": f"{answer.calls_in_flight} calls in flight, {limits.queue_length} may wait"
        if limits.queue_length
        else "",
        "calls travel": _CARRIERS.get(carrier, ""),
        "known as": _known_as(answer.caller),
        "reserved": _reserved(answer),
        "longest call": f"{limits.call_timeout_seconds:g} s" if limits.call_timeout_seconds else "",
        **_device_rows(answer.device),
    }


def in_short(operator: pb.OperatorInfo) -> str:
    """The text for an operator in the table of operators, with rich's markup."""
    lines = [escape(operator.summary.replace("``", "")) if operator.reference else UNVALIDATED]
    if operator.unavailable_because:
        lines.append(f"[yellow]{escape(operator.unavailable_because)}[/yellow]")
    return "\n".join(lines)


def alike(text: str, listed: Iterable[pb.OperatorInfo]) -> list[pb.OperatorInfo]:
    """Those of whose name, name in PyTorch, area or summary a text is a part.

    Raises SettingError if there are none.
    """
    found = [operator for operator in listed if text.lower() in _words_of(operator).lower()]
    if not found:
        names = [operator.name.removeprefix("aclnn") for operator in listed]
        raise SettingError(
            "--like: expected a part of an operator's name, of its name in PyTorch, area or "
            f"summary, found {text!r}{did_you_mean(text, names)}"
        )
    return found


def _words_of(operator: pb.OperatorInfo) -> str:
    from npucall.operators import CATALOGUE  # noqa: PLC0415  # all operators

    known = CATALOGUE.of_name(operator.name)
    words = [word for each in known for word in (f"torch.{each.torch}", each.area or "")]
    return " ".join([operator.name, operator.summary, *words])


def describe(operator: pb.OperatorInfo) -> None:
    """Prints all about an operator."""
    console = output()
    print(f"{operator.name} {operator.variant}".strip())
    print(f"{operator.prototype}\n\n{operator.description}")
    if operator.unavailable_because:
        print(f"\nNot available here: {operator.unavailable_because}")
    rows = []
    for p in operator.parameters:
        default = p.WhichOneof("default_value")
        value = str(getattr(p, default)) if default else ""
        value = _names([p.dtype]) if default == "dtype" else value
        role = _ROLES.get(p.role, "") + ", or null" * (p.optional and operator.reference)
        in_c = f"{p.c_type} {p.c_name}".strip()
        rows.append([p.name, in_c, role, value, p.description])
    if operator.formats_by_rank:
        print("\nA tensor in ND counts as NCL, NCHW or NCDHW if it has 3, 4 or 5 dimensions.")
    names = ("parameter", "in C", "role", "default")
    columns = [*map(Column, names), Column("meaning", prose=True)]
    _titled(console, "Parameters", columns, rows)
    if not operator.reference:
        print("\nThe server guesses from the header which tensors are outputs. Give every output.")
        return
    rows = [
        [product.soc, _names(product.dtypes), "legacy" if product.legacy else ""]
        for product in operator.products
    ]
    _titled(
        console, "Products", [Column("product"), Column("dtypes", prose=True), Column("")], rows
    )
    rows = [
        [rule.description, ", ".join(rule.blames), str(rule.aclnn_status or "")]
        for rule in operator.rules
    ]
    columns = [Column("rule", prose=True), Column("blames", prose=True), Column("status")]
    _titled(console, "Rules, in order", columns, rows)


def _titled(console: Console, title: str, columns: Sequence[Column], rows: list[list[str]]) -> None:
    """A table below its title. The texts come from a server, so they are not read as markup."""
    print()
    cells = [[Text(cell) for cell in row] for row in rows]
    show(console, table(columns, cells, console.width, title))


def busy_units(device: pb.DeviceInfo) -> list[str]:
    """How busy the units of a device are, as far as it tells."""
    used: Any = device.utilization  # its fields by name
    names = {"cube": "cube", "vector": "vector", "aicpu": "AI CPU"}
    told = {name: f"{unit}_percent" for unit, name in names.items()}
    return [f"{name} {getattr(used, f)} %" for name, f in told.items() if used.HasField(f)]


def holder_of(reservation: pb.Reservation) -> str:
    """Who has reserved a device."""
    return "/".join(filter(None, (reservation.holder.tenant, reservation.holder.name)))


def _device_rows(device: pb.DeviceInfo) -> dict[str, str]:
    """What a device says about itself; rows without text are not shown."""
    free, total = device.memory_free_bytes, device.memory_total_bytes
    return {
        "CANN": device.cann_version,
        "driver": device.driver_version,
        "runtime": device.runtime_version,
        "device memory": f"{size(free)} free of {size(total)}" if total else "",
        "busy": ", ".join(busy_units(device)),
        "health": HEALTH.get(device.health, ""),
        "guess": device.product_guess,
    }


def _known_as(caller: pb.CallerInfo) -> str:
    """As whom the server knows this caller, if it asks."""
    if not caller.tenant:
        return ""
    known_by = pb.KnownBy.Name(caller.known_by).removeprefix("KNOWN_BY_").replace("_", " ").lower()
    role = pb.CallerRole.Name(caller.role).removeprefix("CALLER_ROLE_").lower()
    end = f", for {duration(caller.expires_seconds)}" if caller.expires_seconds else ""
    return f"{caller.tenant}/{caller.name} by {known_by}, role {role}{end}"


def _reserved(answer: pb.GetServerInfoResponse) -> str:
    """Who has the device alone."""
    if not answer.HasField("reservation"):
        return ""
    held = answer.reservation
    return f"by {holder_of(held)}, for {held.ends_seconds:.0f} s more; {held.waiting} wait"


def _names(dtypes: Iterable[int]) -> str:
    return ", ".join(str(BY_WIRE[dtype]) for dtype in dtypes)


def _size(count: int) -> str:
    return size(count) if count else ""
