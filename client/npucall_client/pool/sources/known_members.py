"""The members that directories have named, also while a directory starts again. Pure.

A directory that has just started knows no members for a moment [src:pool-directory-restart].
"""

from __future__ import annotations

from dataclasses import replace

from npucall_client.pool.members import Member, MemberState
from npucall_client.pool.sources.changes import Changes


class KnownMembers:
    """All members that are known.

    The members from an earlier stream, or an earlier epoch, still count until the directory is
    complete and lists at least one: a directory that lists none has just started, or is cut off
    from the servers.
    """

    def __init__(self) -> None:
        self.complete = False
        """Whether the directory knows all members, so that there are no others."""
        self._epoch = 0
        self._before: dict[str, Member] = {}
        self._listed: dict[str, Member] = {}

    def begin(self) -> None:
        """A stream begins: its first message has the whole table."""
        self._before = self._all()
        self._listed = {}
        self.complete = False

    def hear(self, changes: Changes) -> None:
        """The next message of the stream."""
        if changes.epoch != self._epoch:
            self.begin()
            self._epoch = changes.epoch
        for member in changes.members:
            self._listed[member.address] = member
        for address in changes.gone:
            self._listed.pop(address, None)
            self._before.pop(address, None)
        self.complete = changes.complete
        if self.complete and self._listed:
            self._before = {}

    def forget_loads(self) -> None:
        """No directory says how busy members are now, so they count as idle."""
        self._before = {
            address: member
            if member.load is None
            else replace(member, load=type(member.load)(0, 0, member.load.lanes, 0, reserved=False))
            for address, member in self._all().items()
        }
        self._listed = {}

    @property
    def members(self) -> list[Member]:
        """All that are known."""
        return [*self._all().values()]

    @property
    def hears_nobody(self) -> bool:
        """Whether the directory says that it has not heard of any member for a while."""
        return self.complete and all(
            member.state is MemberState.SUSPECT for member in self._listed.values()
        )

    def _all(self) -> dict[str, Member]:
        return {**self._before, **self._listed}
