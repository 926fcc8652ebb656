"""What is wrong with settings, in sentences."""

from __future__ import annotations

from pydantic import ValidationError


def sentences(error: Exception, setting: str = "") -> str:
    """What is wrong with the settings, or with the value of one setting: a line for each fault."""
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for fault in error.errors():
        if fault["type"] == "default_factory_not_called":
            continue  # a default that depends on a wrong value
        place = ".".join(map(str, (*filter(None, [setting]), *fault["loc"])))
        message = fault["msg"].removeprefix("Value error, ")
        named = not place or message.startswith(f"{place}:")
        lines.append(message if named else f"{place}: {message}")
    return "\n".join(lines)
