"""What is said where an extra of a distribution is not installed. Pure."""


def missing(what: str, distribution: str, extra: str) -> str:
    """A sentence that names the extra; ``what``: that which needs it."""
    return f"{what}: the extra {extra} is missing; pip install '{distribution}[{extra}]'"
