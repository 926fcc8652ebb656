"""Texts from others, made safe to keep and to show: short, and without terminal commands."""


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
