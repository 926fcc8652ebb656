"""Calls operators of Ascend NPUs, or of the CPU reference: arrays in, arrays out.

::

    import npucall_client
    from npucall.operators.kl_div_backward import kl_div_backward

    with npucall_client.connect("127.0.0.1:50051") as client:
        gradient = client.run(kl_div_backward, grad_output, self=student, target=teacher)

``connect("local:")`` computes in this process, without a server.

Its modules, from the top::

    torch           losses and activations for PyTorch
    commands        the command ``npucall``
    testing         the fixture for pytest
    aio             the client for asyncio
    client, base    ``connect`` and ``Client``; what both clients do
    pool            many servers behind one target
    local           ``local:``
    sessions        arrays that stay on the server
    sending         calls travel to a server and back
    shared          memory shared with a server of this host
    calls           arguments become a call, and its answer becomes arrays
    settings        every setting of the client
    targets, views  what a target says; what a server says, short to look at
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "CallWarning",
    "Client",
    "Empty",
    "Options",
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

if TYPE_CHECKING:
    from npucall_client.calls.hints import CallWarning
    from npucall_client.calls.options import Plan, Result
    from npucall_client.calls.tensors import Empty
    from npucall_client.client import Client, connect
    from npucall_client.sessions.program import Program, ProgramPlan
    from npucall_client.sessions.remote import Remote
    from npucall_client.sessions.session import Session
    from npucall_client.settings import Options
    from npucall_client.shared.memory import SharedMemory
else:
    _PLACES = {
        "CallWarning": "calls.hints",
        "Client": "client",
        "Empty": "calls.tensors",
        "Options": "settings",
        "Plan": "calls.options",
        "Program": "sessions.program",
        "ProgramPlan": "sessions.program",
        "Remote": "sessions.remote",
        "Result": "calls.options",
        "Session": "sessions.session",
        "SharedMemory": "shared.memory",
        "connect": "client",
    }

    def __getattr__(name: str) -> object:
        """A name of this package, or a module, loaded where somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-client")
        if name in _PLACES:
            value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
            globals()[name] = value
            return value
        module = f"{__name__}.{name}"
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """What users use of it; ``import npucall`` shows the same."""
        return sorted({*__all__, "__version__", "aio", "torch"})
