"""The contract of npucall: messages, operators, their rules and their evaluation on a CPU."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata where somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
