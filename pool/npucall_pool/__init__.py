"""The command npucall-pool: keeps one ``npucall-server`` per device on the hosts of a Ray cluster.

Ray starts keepers, and restarts them. Ray does not decide whether a member is alive: servers
announce themselves to the pool's directory. No call passes through Ray.

Its modules, from the top::

    command, rows       the command; its table
    pool_file           the TOML file that says which servers there are
    steps, cluster      the steps of each command; the requests to Ray
    actors              a keeper as an actor of Ray
    plan, order         the work for each keeper; the order that tells it
    keeping, keeper     a keeper at work; its state machine
    child, bound        the server's process; ends it together with its keeper
    environment, ports  the environment variables that the server gets; a free port
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata when it is first needed."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-pool")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
