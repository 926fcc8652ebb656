"""Calls operators of Ascend NPUs, or of the CPU reference: arrays in, arrays out.

::

    import npucall_client
    from npucall.operators.kl_div_backward import kl_div_backward

    with npucall_client.connect("127.0.0.1:50051") as client:
        gradient = client.run(kl_div_backward, grad_output, self=student, target=teacher)

``connect("local:")`` computes in this process, without a server.

Its modules, from the top::

    torch                     losses and activations for PyTorch
    command                   the command ``npucall``
    reservation_command       ``npucall reserve`` and ``npucall release``
    conformance, watching     the suite; the commands that show what others do
    testing                   the fixture for pytest
    command_texts             what ``npucall info`` and ``npucall operators`` say
    console, exits            tables and targets of all commands; exit codes
    aio                       the client for asyncio
    client, base              ``connect`` and ``Client``; what both clients do
    pool                      many servers behind one target
    local, local_sessions     ``local:``, and its sessions
    remote                    calls on a server
    sessions, pipeline        arrays that stay on the server; many calls in flight
    transport                 what a client asks of a server, or of this process
    calling                   options, results, plans; arguments become a call
    reservations, shared      a reservation that is renewed; memory shared with a server
    answers, arguments, argument_texts  answers; arguments, of Python and of a command line
    hints                     Python's hints in errors, and warnings, from what a server says
    arrays, held              what callers hold for a tensor; what a session holds
    senders                   wait and send, by threads or on an event loop
    settings, tracing         every setting of the client; spans of OpenTelemetry
    targets, timeouts         what a target says; how long a caller may wait
"""

from importlib import import_module
from typing import TYPE_CHECKING

from npucall_client.calling import Plan, Result
from npucall_client.client import Client, connect
from npucall_client.held import Empty
from npucall_client.hints import CallWarning
from npucall_client.sessions.program import Program, ProgramPlan
from npucall_client.sessions.remote import Remote
from npucall_client.sessions.session import Session
from npucall_client.shared.memory import SharedMemory

__all__ = [
    "CallWarning",
    "Client",
    "Empty",
    "Plan",
    "Program",
    "ProgramPlan",
    "Remote",
    "Result",
    "Session",
    "SharedMemory",
    "connect",
]

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata when a program asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-client")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
