"""``Remote``: the client's object for a tensor on the server."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from npucall.dtypes import BY_NUMPY, AnyArray
from npucall.errors import HandleEmptyError, HandleLostError, HandleReleasedError, NpucallError
from npucall.limits import CACHED_CALLS
from npucall.places import HandlePart, StepOutput
from npucall.tensors import Buffer, Shape, TensorSpec
from npucall_client.calls import arrays
from npucall_client.calls.tensors import HeldTensor, Tensor
from npucall_client.sending.senders import finished
from npucall_client.settings import checked_seconds

if TYPE_CHECKING:
    import numpy as np

    from npucall_client.calls.options import Progress
    from npucall_client.sessions.session_link import SessionLink


__tracebackhide__ = True  # in a red test pytest shows the line that called

_STATES = {HandleReleasedError: "released", HandleEmptyError: "empty"}


@lru_cache(CACHED_CALLS)
def _spec_of(tensor: Tensor) -> TensorSpec:
    dtype, shape, strides, storage_shape = tensor
    return TensorSpec(BY_NUMPY[dtype], shape, strides, 0, storage_shape)  # type: ignore[arg-type]


_HOST = 1, 0
"""Its device, as DLPack names it."""


class RemoteTensor(HeldTensor):
    """A tensor on the server, without the methods that wait for the server."""

    __slots__ = (
        "__weakref__", "_fault", "_filling", "_handle", "_here", "_made", "_nbytes", "_program",
        "_step", "from_torch", "home", "tensor",
    )  # fmt: skip

    home: SessionLink

    def __init__(  # noqa: PLR0913  # all that makes one
        self,
        home: SessionLink,
        handle: bytes,
        tensor: Tensor,
        nbytes: int,
        *,
        from_torch: bool,
        program: object = None,
        step: StepOutput | None = None,
    ) -> None:
        self.home = home
        self.tensor = tensor
        self.from_torch = from_torch
        """Whether it was made from tensors of torch."""
        self._handle = handle
        """Empty if it has no bytes on the server."""
        self._nbytes = nbytes
        self._program = program
        self._step = step
        """Its step in its program, until the program has run."""
        self._here: bytes | None = None
        self._fault: NpucallError | None = None
        self._filling = home.filling
        self._made = time.monotonic()

    def __del__(self) -> None:
        if self._handle:
            self.home.collect(self._handle, self._nbytes)

    def __repr__(self) -> str:
        state = f"{time.monotonic() - self._made:.0f} s old"
        if self._fault is not None:
            state = _STATES[type(self._fault)]
        if self._step is not None:
            state = "waits for its program"
        return f"<Remote {self.dtype} {self.shape} on {self.home.host}, {state}>"

    @property
    def shape(self) -> Shape:
        """Its extents."""
        return self.tensor[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype, as NumPy has it."""
        return self.tensor[0]

    @property
    def handle(self) -> bytes:
        """The handle by which the server knows it."""
        return self._handle

    @property
    def nbytes(self) -> int:
        """Bytes that it holds on the server."""
        return self._nbytes

    async def _numpy(self, progress: Progress | None, timeout: float | None) -> AnyArray:
        spec = _spec_of(self.tensor)
        timeout = None if timeout is None else checked_seconds(timeout)
        place = self.place(None)
        if isinstance(place, HandlePart):
            return arrays.receive(spec, await self.home.download(self, place, timeout, progress))
        return arrays.receive(spec, memoryview(place))  # type: ignore[arg-type]  # bytes: no step

    async def _torch(self, progress: Progress | None, timeout: float | None) -> Any:
        return arrays.to_torch(await self._numpy(progress, timeout))

    async def _fetch(self, progress: Progress | None, timeout: float | None) -> Any:
        read = self._torch if self.from_torch else self._numpy
        return await read(progress, timeout)

    async def _release(self) -> None:
        self.drop()
        await self.home.flush()

    def drop(self) -> None:
        """Gives its memory back with the next batch."""
        if self._step is not None:
            raise self._not_run()
        if self._fault is None:
            self._fault = HandleReleasedError(
                f"{self!r} was released; keep a Remote until no later call needs it"
            )
        handle, self._handle, self._here = self._handle, b"", None
        if handle:
            self.home.collect(handle, self._nbytes)

    def place(self, within: object) -> Buffer | HandlePart | StepOutput:
        """Where its bytes are for a call; see ``HeldTensor.place``."""
        if self._step is not None:
            if self._program is within:
                return self._step
            raise self._not_run()
        if self._fault is not None:
            raise type(self._fault)(str(self._fault))
        if self._here is not None:
            return self._here
        if self._filling != self.home.filling and not self.home.proves(self._handle):
            raise HandleLostError(
                f"{self!r} was lost with the session before this one, and the client does not have "
                "its bytes; repeat the call that made it",
                handles=self._handle.hex(),
            )
        return HandlePart(self._handle, 0, self._nbytes)

    def filled(self, here: bytes | None = None) -> None:
        """Its program has run. ``here``: its bytes, if they came back."""
        self._program = self._step = None
        self._here = here
        self._made = time.monotonic()
        self._filling = self.home.filling

    def never_filled(self, why: str) -> None:
        """Its program did not run, or failed."""
        self._fault = HandleEmptyError(f"{self!r} holds no bytes: {why}")
        self._program = self._step = None

    def keep_as(self, handle: bytes) -> None:
        """Its program keeps it under this handle."""
        self._handle = handle

    def __array__(self, dtype: Any = None, copy: Any = None) -> AnyArray:
        """Raises TypeError: only ``numpy`` makes an array, so that downloads are explicit."""
        raise TypeError(f"{self!r}: expected an array, found a Remote; its numpy() downloads it")

    def _not_run(self) -> HandleEmptyError:
        return HandleEmptyError(
            f"{self!r} has no value yet: its program has not run; leave the program's `with` "
            "block first"
        )

    if TYPE_CHECKING:  # what operators ask of arrays: a call takes it, nothing else computes it

        def __neg__(self) -> Any: ...
        def __add__(self, other: Any, /) -> Any: ...
        def __sub__(self, other: Any, /) -> Any: ...
        def __mul__(self, other: Any, /) -> Any: ...
        def __truediv__(self, other: Any, /) -> Any: ...
        def __lt__(self, other: Any, /) -> Any: ...
        def __le__(self, other: Any, /) -> Any: ...
        def __gt__(self, other: Any, /) -> Any: ...
        def __ge__(self, other: Any, /) -> Any: ...


class Remote(RemoteTensor):
    """A tensor on the server. Made by a session; a call takes it wherever it takes an array.

    ``numpy``, ``torch`` and ``fetch`` download it; nothing else does, so NumPy's own functions
    refuse it. After Python has collected it, the server releases it together with others.
    """

    __slots__ = ()

    def numpy(self, *, progress: Progress | None = None, timeout: float | None = None) -> AnyArray:
        """Downloads it, as a NumPy array of its own memory.

        progress: called with bytes sent, bytes received, and bytes in all. timeout: in seconds, the
        client's if not given.

        Raises HandleEmptyError, HandleReleasedError, HandleLostError and SessionExpiredError;
        DeadlineError.
        """
        return finished(self._numpy(progress, timeout))

    def __dlpack__(self, **wanted: Any) -> Any:
        """Downloads it for another library: ``torch.from_dlpack(remote)``."""
        return self.numpy().__dlpack__(**wanted)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The memory of this host."""
        return _HOST

    def torch(self, *, progress: Progress | None = None, timeout: float | None = None) -> Any:
        """Downloads it, as a torch tensor. Raises ImportError without torch; see ``numpy``."""
        return finished(self._torch(progress, timeout))

    def fetch(self, *, progress: Progress | None = None, timeout: float | None = None) -> Any:
        """Downloads it: as a torch tensor if tensors of torch came in, else as an array."""
        return finished(self._fetch(progress, timeout))

    def release(self) -> None:
        """Gives its memory back now, not when Python collects it. You cannot use it after that.

        Calls that read it already go on. Nothing happens if it was released before.
        """
        finished(self._release())
