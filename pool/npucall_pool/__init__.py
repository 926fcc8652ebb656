"""Keeps one ``npucall-server`` a device on the hosts of a Ray cluster: the command npucall-pool.

Ray starts keepers, and starts them again. Whether a member lives is not Ray's to say: servers
announce themselves to the pool's directory. No call passes through Ray.

Its modules, from the top::

    command, report     the command; its table
    steps, cluster      what it does; what it asks of Ray
    actors              a keeper as an actor of Ray
    plan, order         what each keeper is to do; what it is told
    keeping, keeper     a keeper at work; its state machine
    child, bound        the server's process, and what ends it with its keeper
    environment, ports  what the server gets of the environment; a free port
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata where somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-pool")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
