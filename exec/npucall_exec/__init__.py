"""Programs for an Ascend NPU, run without one: ``npucall exec`` and ``npucall toolkit``.

``runtime/`` is CANN's C interface in C++: memory, streams, events, descriptors and executors, and
what a caller must not do. It has two ends: its own ``runtime/socket/``, and that of the simulator
in npucall's tests. The modules, from the top::

    exec_command            the commands
    serving                 the socket to which programs connect
    residence, launched     what stays on the server that computes; calls that wait
    calls, findings         what they compute; what they must not do
    toolkit                 the tree of an installed toolkit, built
    headers, entry_points   its headers; the C++ of the operators
    own_operators           those that a user's headers declare
    device_memory           the bytes that a program and the command have in common
    launches, frames        a call as the runtime tells it; the frames of the socket
    compiler, environment   g++; variables and folders
    binaries                why a program does not use our libraries
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata when it is first needed."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-exec")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
