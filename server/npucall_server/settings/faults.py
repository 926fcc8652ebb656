"""What is wrong with settings, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from npucall.texts import did_you_mean


def sentences(error: Exception, setting: str = "", known: Iterable[str] = ()) -> str:
    """What is wrong with the settings, or with the value of one setting: a line for each fault.

    ``known``: the names of all settings, of which one may be meant by a name that is none.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for fault in error.errors():
        if fault["type"] == "default_factory_not_called":
            continue  # a default that depends on a wrong value
        place = ".".join(map(str, (*filter(None, [setting]), *fault["loc"])))
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = f"no setting has this name{did_you_mean(str(fault['loc'][-1]), known)}"
        named = not place or message.startswith(f"{place}:")
        lines.append(message if named else f"{place}: {message}")
    return "\n".join(lines)
