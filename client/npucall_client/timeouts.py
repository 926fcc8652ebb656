"""How long may be waited: one rule for every timeout that a caller gives."""

from __future__ import annotations

import reprlib
from numbers import Real
from typing import Any

from npucall.errors import SettingError

LONGEST_SECONDS = 1e9
"""Of a timeout: gRPC and the clocks of threads count a little further."""


def checked_seconds(value: Any, name: str = "timeout", *, zero: bool = False) -> float:
    """The seconds that a caller gave, as a float. ``zero``: none at all may be given too.

    Raises SettingError, which names the argument.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and (0 < value <= LONGEST_SECONDS or (zero and value == 0)):
        return float(value)
    least, found = "from 0" if zero else "more than 0, and", reprlib.repr(value)
    raise SettingError(
        f"{name}: expected seconds, {least} up to {LONGEST_SECONDS:.0f}, found {found}",
        setting=name,
    )
