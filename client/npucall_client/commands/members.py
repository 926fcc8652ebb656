"""``npucall members``: who is in a pool, how busy they are, and who cannot be reached."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from npucall.errors import NpucallError, ServerUnreachableError, SettingError
from npucall.texts import size
from npucall.wire.rpcs import GET_ACTIVITY, GET_SERVER_INFO, LIFT_PAUSE
from npucall_client.commands.as_json import AsJson, print_json
from npucall_client.commands.console import (
    Column,
    Target,
    TargetOption,
    output,
    show,
    table,
    the_target,
)
from npucall_client.local.transport import LocalTransport
from npucall_client.pool.kinds import kind_of, kind_of_most
from npucall_client.pool.links import said, serves, settings_of, trusts
from npucall_client.pool.members import Load, Member, MemberState, Source
from npucall_client.pool.picking import Requirements
from npucall_client.pool.sources import source_of
from npucall_client.sending.link import Link
from npucall_client.sending.probe import connected
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.sending.threads import THREADS
from npucall_client.settings import ClientSettings
from npucall_client.targets import ANY, LOCAL, POOL

_PATIENCE_SECONDS = 5.0
"""For the answer of one member."""
_MOST_THREADS = 32
_HEADINGS = ("address", "state", "host", "device", "soc", "product", "labels", "version")
_NUMBERS = ("running", "waiting", "lanes", "bytes", "reserved")
_STATES = {"draining": "yellow", "suspect": "yellow", "left out": "yellow", "unreachable": "red"}


class ListedMember(NamedTuple):
    """A member, and why it did not answer; empty where it did, or was not asked."""

    member: Member
    failure: str = ""
    is_odd: bool = False
    """Whether it is of another kind than most, so that clients which do not ask for it leave it
    out."""
    slowed: tuple[str, ...] = ()
    """Whose calls ended processes there, with the pause between them now; as far as the caller of
    this command may know."""

    @property
    def state(self) -> str:
        """As it is shown."""
        if self.failure:
            return "unreachable"
        return "left out" if self.is_odd else self.member.state.value


def members(
    target: Target = None,
    target_option: TargetOption = None,
    as_json: AsJson = False,  # noqa: FBT002  # a flag
    lift: Annotated[
        str,
        typer.Option(
            metavar="TENANT/NAME",
            help="For admins: forget on all members which processes calls of that person ended.",
        ),
    ] = "",
) -> None:
    """Lists the members of a pool and how busy they are.

    If the directory does not know all of this, the command asks the members, all at once.

    Examples:
        npucall members --target pool:directory:npu-lab
        npucall members --target pool:npu-a:50051,npu-b:50051 --json
    """
    settings = ClientSettings.of(target=the_target(target, target_option))
    found, why = listed(settings)
    for member in found if lift else ():
        _lift(member, lift, settings)
    seen = all_seen(found, settings)
    if as_json:
        print_json([as_data(each) for each in seen])
        return
    console = output()
    columns = [*map(Column, _HEADINGS), *(Column(name, number=True) for name in _NUMBERS)]
    rows = [[*_facts(each), *_numbers(each.member)] for each in seen]
    show(console, table(columns, rows, console.width))
    for each in seen:
        for person in each.slowed:
            said = f"{escape(each.member.address)}: calls of {escape(person)}"
            console.print(f"[yellow]{said}[/yellow]", soft_wrap=True)
        if each.failure:
            failure = f"[red]{escape(each.member.address)}[/red]: {escape(each.failure)}"
            console.print(failure, soft_wrap=True)
    if why:
        console.print(f"[yellow]{escape(why)}[/yellow]", soft_wrap=True)


def listed(settings: ClientSettings) -> tuple[Sequence[Member], str]:
    """The members that a target has, and what is wrong with where they come from.

    Raises ServerUnreachableError if the source does not list them within ``connect_timeout``.
    """
    if not settings.target.startswith(POOL):
        return [Member(settings.target)], ""
    source = source_of(settings)
    try:
        return _heard(source, settings), source.why_empty()
    finally:
        source.close()


def _heard(source: Source, settings: ClientSettings) -> Sequence[Member]:
    """What a source lists, once it knows all."""
    heard: list[Sequence[Member]] = []
    known = threading.Event()

    def update(members: Sequence[Member], *, complete: bool) -> None:
        heard.append(members)
        if complete:
            known.set()

    source.start(update)
    if not known.wait(settings.connect_timeout) and not heard:
        raise ServerUnreachableError(
            f"target: expected members of {settings.target} within {settings.connect_timeout:g} s, "
            f"found none: {source.why_empty()}; correct the target (NPUCALL_TARGET)"
        )
    return heard[-1]


def all_seen(found: Sequence[Member], settings: ClientSettings) -> list[ListedMember]:
    """The members by their addresses; those of whom little is known are asked, all at once."""
    if not found:
        return []
    with ThreadPoolExecutor(min(len(found), _MOST_THREADS)) as threads:
        ordered = sorted(found, key=lambda member: member.address)
        seen = [*threads.map(lambda member: _seen(member, settings), ordered)]
    wish = Requirements(settings.soc, settings.product, settings.labels)
    called = [each.member for each in seen if not each.failure and wish.allows(each.member)]
    kind = None if wish.soc == ANY else kind_of_most(called)
    if kind is None:
        return seen
    return [each._replace(is_odd=kind_of(each.member) not in (None, kind)) for each in seen]


def _seen(member: Member, settings: ClientSettings) -> ListedMember:
    if member.soc and not member.slowed:
        return ListedMember(member)
    try:
        return _asked(member, settings)
    except NpucallError as error:
        return ListedMember(member, f"{error} ({error.reason})")


def _asked(member: Member, settings: ClientSettings) -> ListedMember:
    """What a member says of itself. Raises what keeps it from doing so."""
    if member.address == LOCAL:
        local = LocalTransport(settings.soc)
        info = local.get_server_info(GET_SERVER_INFO.request())
        return ListedMember(said(member, info))
    link = _linked(member, settings)
    request = Request(_PATIENCE_SECONDS, once=True)
    try:
        now = finished(ServerTransport(link).answer(request, GET_ACTIVITY, GET_ACTIVITY.request()))
        state = (
            MemberState.SERVING
            if finished(serves(link, _PATIENCE_SECONDS))
            else MemberState.DRAINING
        )
    finally:
        finished(link.close())
    load = Load(
        now.running,
        now.waiting,
        now.lanes,
        link.info.bytes_in_flight,
        reserved=now.HasField("reservation"),
    )
    slowed = tuple(
        f"{each.caller.tenant}/{each.caller.name} ended {each.processes_ended:.3g} processes and "
        f"go one at a time, {each.pause_seconds:g} s apart"
        for each in now.callers
        if each.pause_seconds
    )
    return ListedMember(said(replace(member, load=load, state=state), link.info), slowed=slowed)


def _lift(member: Member, person: str, settings: ClientSettings) -> None:
    """Raises PermissionDeniedError if the caller is no admin."""
    tenant, slash, name = person.partition("/")
    if not (slash and tenant and name):
        raise SettingError(f"--lift: expected TENANT/NAME, found {person!r}", setting="lift")
    link, asked = _linked(member, settings), LIFT_PAUSE.request(tenant=tenant, name=name)
    try:
        request = Request(_PATIENCE_SECONDS, once=True)
        finished(ServerTransport(link).answer(request, LIFT_PAUSE, asked))
    finally:
        finished(link.close())


def _linked(member: Member, settings: ClientSettings) -> Link:
    own = settings_of(member, settings, _PATIENCE_SECONDS)
    trusted = not settings.target.startswith(POOL) or trusts(settings)
    return finished(connected(own, THREADS, waits=False, trusted=trusted))


def as_data(seen: ListedMember) -> dict[str, Any]:
    """A member as what JSON can hold."""
    member = seen.member
    load = None if member.load is None else member.load._asdict()
    told = {"state": seen.state, "load": load, "failure": seen.failure, "slowed": seen.slowed}
    return {**asdict(member), **told}


def _facts(seen: ListedMember) -> list[str]:
    member, color = seen.member, _STATES.get(seen.state)
    labels = "\n".join(f"{key}={value}" for key, value in sorted(member.labels.items()))
    host = member.host or member.address.rpartition(":")[0]
    texts = [host, member.device, member.soc, member.product, labels, member.version]
    state = f"[{color}]{seen.state}[/{color}]" if color else seen.state
    return [escape(member.address), state, *map(escape, texts)]


def _numbers(member: Member) -> list[str]:
    load = member.load
    if load is None:
        return []
    held = size(load.bytes_in_flight)
    if member.memory_limit:
        held += f" of {size(member.memory_limit)}"
    reserved = "yes" if load.reserved else ""
    return [f"{load.running}", f"{load.waiting}", f"{load.lanes}", held, reserved]
