"""The server: one process that runs operators on one device."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata where somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-server")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
