"""Makes each C function that a call uses fail, and finds what does not happen as it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from npucall_server.devices.cann.status_table import Fate

from .faults import CANNOT_FAIL, Fault, failure, status_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .asked import Asked
    from .opened import Opened
    from .situations import Situation

SOME_TIMES = 3
"""After which a function that some work uses has been called twice, or will never be."""


class Sweep(NamedTuple):
    """One work in one situation, done on a fresh device for each fault."""

    open_device: Callable[..., Opened]
    situation: Situation
    serves: Callable[[Opened, Asked], bool]
    """Does the work, and says whether its answer is right."""

    def ready(self) -> tuple[Opened, Asked]:
        """A device to which all has happened that comes before, and the call."""
        opened = self.open_device(**self.situation.settings)
        for ask in self.situation.before:
            assert opened.serves(ask(opened.device))
        return opened, self.situation.then(opened.device)

    def functions(self) -> list[str]:
        """The C functions that the work uses."""
        opened, asked = self.ready()
        functions = opened.functions(lambda: self.serves(opened, asked))
        opened.close()
        return functions

    def faults(self, fate: Fate, *occurrences: int) -> list[Fault]:
        """Each function that fails at each of these calls of it."""
        return [
            Fault(function, status_for(fate, function), nth)
            for function in self.functions()
            if function not in CANNOT_FAIL
            for nth in occurrences
        ]

    def misfits(self, faults: Iterable[Fault], *, times: int = 1) -> list[str]:
        """What goes wrong when one function fails; so many times in a row."""
        found = []
        for fault in faults:
            opened, asked = self.ready()
            for _ in range(times):
                fault.set(opened.simulator)
            wrong = self._meet(opened, asked, fault, mended=times == 1)
            if wrong is not None:
                found += wrong or self._after(opened, asked, fault)
            opened.abandon()
        return found

    def _meet(
        self, opened: Opened, asked: Asked, fault: Fault, *, mended: bool
    ) -> list[str] | None:
        """Does the work until the fault is met; None if it never calls that function so often."""
        last = opened.simulator.call_count(fault.function) + fault.nth
        for _ in range(SOME_TIMES):
            served: list[bool] = []
            error = failure(lambda served=served: served.append(self.serves(opened, asked)))
            if served == [False]:
                return [f"{fault}: another answer"]
            if opened.simulator.call_count(fault.function) >= last:
                opened.simulator.clear_faults()
                if fault.tolerated or (mended and fault.fate is Fate.MEMORY):
                    return [f"{fault}: expected no error, found {error!r}"] if error else []
                return fault.misfits(error)
            if error is not None:
                return [f"{fault}: found {error!r} too soon"]
        return None

    def _after(self, opened: Opened, asked: Asked, fault: Fault) -> list[str]:
        """What is wrong once the work has failed."""
        found = opened.simulator.violations()
        breaks = fault.fate is Fate.BROKEN and not fault.tolerated
        if len(opened.lost) != breaks:
            found.append(f"lost {opened.lost}")
        if not breaks:
            if not self.serves(opened, asked):
                found.append("the next time the answer was another one")
            opened.close()
            found += [f"left {opened.simulator.live_objects()}", *opened.simulator.violations()]
        return [f"{fault}: {what}" for what in found if what != "left {}"]
