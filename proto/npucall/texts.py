"""Texts for messages: what others wrote, made short and harmless; sentences that many say."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_NAME = 64
"""Characters of an unknown name; for a longer one there is no suggestion."""
_ALIKE = 0.75
"""How similar two names must be for a suggestion, from 0 to 1."""
_BEGINNING = 4
"""Characters of the beginning of a name that are enough for a suggestion."""
_UNITS = ("KiB", "MiB", "GiB")
_STEP = 1024


def retry_in(seconds: float) -> str:
    """The ``retry_after`` of a refusal in words; on the wire it is RetryInfo."""
    exact = seconds < 100  # noqa: PLR2004  # longer ones in whole seconds
    return f"retry in {seconds:.3g} s" if exact else f"retry in {seconds:.0f} s"


def size(count: float) -> str:
    """Bytes, such as 512 B or 1.0 GiB."""
    if count < _STEP:
        return f"{count:.0f} B"
    for unit in _UNITS:
        count /= _STEP
        if count < _STEP:
            return f"{count:.1f} {unit}"
    return f"{count / _STEP:,.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds, in the two largest units."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = {"d": days, "h": hours, "min": minutes, "s": seconds}
    said = [f"{count} {unit}" for unit, count in parts.items() if count]
    return " ".join(said[:2]) or "0 s"


def cut(text: str, limit: int) -> str:
    """The beginning of a text that fits into ``limit`` bytes of UTF-8, cut between characters."""
    if len(text) * 4 <= limit:
        return text
    return text[:limit].encode(errors="replace")[:limit].decode(errors="ignore")


def shown(text: str) -> str:
    """A text on one line: what cannot be printed, or turns the direction of text, is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def middle_cut(text: str, limit: int) -> str:
    """The text or, if it is longer than ``limit`` characters, its beginning and end."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n...\n{text[-half:]}"


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: those spelled similarly, or that begin so.

    Upper case, underscores and a leading ``aclnn`` do not matter.
    """
    if len(found) > _LONGEST_NAME:
        return ""
    names = {plain(name): name for name in known}
    wanted = plain(found)
    near = [wanted] if wanted in names else get_close_matches(wanted, names, cutoff=_ALIKE)
    if not near and len(wanted) >= _BEGINNING:
        near = [name for name in names if name.startswith(wanted)][:3]
    return f"; did you mean {' or '.join(names[each] for each in near)}?" if near else ""


def missing_extra(what: str, distribution: str, extra: str) -> str:
    """A sentence that names the extra of a distribution; ``what``: that which needs it.

    Nothing of npucall is on a package index. The extra testing needs the server, from there too.
    """
    server = "./server " if (distribution, extra) == ("npucall-client", "testing") else ""
    folder = distribution.removeprefix("npucall-")
    install = f"pip install {server}'./{folder}[{extra}]', in npucall's sources"
    return f"{what}: the extra {extra} is missing; {install}"


def missing_distribution(what: str, folder: str) -> str:
    """A sentence that names the distribution of a folder; ``what``: that which needs it."""
    missing = f"the distribution npucall-{folder} is missing"
    return f"{what}: {missing}; pip install ./{folder}, in npucall's sources"


def plain(name: str) -> str:
    """A name without what does not matter: upper case, underscores, a leading ``aclnn``."""
    return name.lower().replace("_", "").removeprefix("aclnn")
