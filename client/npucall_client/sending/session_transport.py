"""The requests of a session to the holder of its handles: a server, or this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.errors import NpucallError
    from npucall.places import HandlePart
    from npucall.tensors import Buffer
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Progress
    from npucall_client.sending.request import Request


class Opened(NamedTuple):
    """A session, as it was granted."""

    id: str
    lease: float
    """Seconds after the last call until it ends; infinite if it does not."""
    budget: int
    """Bytes that its handles may hold."""


@dataclass(frozen=True)
class HandleUpload:
    """Bytes that fill a handle."""

    handle: bytes
    data: Buffer
    digest: bytes = b""
    """Their SHA-256, by which the server is to remember them; empty: it is not."""
    dtype: int = 0
    """What the elements are: a value of ``npucall.v1.DataType``."""
    by_digest: bool = False
    """Only the digest is sent; raises MissingError where the server has no such bytes."""


class SessionTransport(Protocol):
    """Sessions, their handles and their programs."""

    async def program_steps(self) -> int:
        """Most steps of a program; 0: there are no programs."""

    async def remembers(self) -> bool:
        """Whether bytes are kept by their digests."""

    async def open(
        self, request: Request, lease: float, budget: int, *, refillable: bool
    ) -> Opened:
        """Opens a session. 0: as long, or as much, as the holder allows."""

    def lost(self, error: NpucallError) -> NpucallError:
        """What an error of a session that was answered by another server means here."""

    async def renew(self, request: Request) -> None:
        """Starts its lease again."""

    async def close(self, request: Request) -> None:
        """Ends it, and releases its handles."""

    async def release(self, request: Request, handles: Sequence[bytes]) -> None:
        """Releases handles, any number of them."""

    async def upload(
        self, request: Request, upload: HandleUpload, progress: Progress | None
    ) -> None:
        """Fills a handle."""

    async def download(
        self, request: Request, part: HandlePart, memory: memoryview, progress: Progress | None
    ) -> None:
        """Writes what a handle holds to memory of that length."""

    async def run_program(self, request: Request, steps: Sequence[BoundCall]) -> list[Response]:
        """Runs the steps, and answers each of them."""

    async def plan_program(
        self, request: Request, steps: Sequence[BoundCall]
    ) -> pb.PlanProgramResponse:
        """Checks the steps."""
