"""The server: one process that runs operators on one device.

Its rooms, from the top::

    __main__     the console script
    commands     what ``npucall-server`` can be told to do
    directory    the command ``npucall-directory``
    serving      puts a server together, binds its addresses, serves, drains
    services     the RPCs
    carriers     how bytes come in and go out
    metrics, announcing  what Prometheus reads; what directories are told
    calls        the life of one call
    sessions, shared  handles and digests; shared memory
    scheduling   who gets the device, and when
    devices      what runs calls
    accounts     what callers hold and have used
    access       who calls
    settings, telemetry  what may be set; the log and spans
    exits, retries  exit codes; when a refused caller may try again
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version. It is read from the distribution's metadata when somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-server")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
