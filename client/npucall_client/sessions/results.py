"""The results of a call as its client has them before the call has run."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from npucall.limits import HANDLE_BYTES
from npucall.places import StepOutput

if TYPE_CHECKING:
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sessions.checks import Checks
    from npucall_client.sessions.program import ProgramBase
    from npucall_client.sessions.remote import RemoteTensor
    from npucall_client.sessions.session_link import SessionLink


def results_of(home: SessionLink, call: BoundCall, checks: Checks) -> dict[str, RemoteTensor]:
    """A Remote for each output that the caller gave no array for, by name.

    Raises the error that the server would raise before it runs the call.
    """
    return {
        name: home.remote(home, new_handle(), tensor, nbytes, from_torch=call.from_torch)
        for name, (tensor, nbytes) in checks.results_of(call).items()
        if name not in call.targets
    }


def results_of_step(  # what stands for a result, and whose it is
    program: ProgramBase,
    number: int,
    home: SessionLink,
    call: BoundCall,
    checks: Checks,
) -> dict[str, RemoteTensor]:
    """The same of a step of a program. They get handles when it is sent."""
    return {
        name: home.remote(
            home,
            b"",
            tensor,
            nbytes,
            from_torch=call.from_torch,
            program=program,
            step=StepOutput(number, name),
        )
        for name, (tensor, nbytes) in checks.results_of(call).items()
        if name not in call.targets
    }


def new_handle() -> bytes:
    """An id that nobody can guess."""
    return secrets.token_bytes(HANDLE_BYTES)
