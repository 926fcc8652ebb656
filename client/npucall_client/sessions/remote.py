"""``Remote``: a tensor that lies on the server, as its client has it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from npucall.buffers import fresh
from npucall.dtypes import BY_NUMPY
from npucall.errors import HandleEmptyError, HandleLostError, HandleReleasedError
from npucall.places import HandlePart
from npucall.tensors import TensorSpec
from npucall_client import arrays
from npucall_client.held import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from npucall.dtypes import AnyArray
    from npucall.places import StepOutput
    from npucall.tensors import Buffer, Shape
    from npucall_client.calling import Progress
    from npucall_client.held import Tensor
    from npucall_client.sessions.home import Home

    Download = Callable[["Remote", memoryview, Progress | None, float | None], None]
    """Brings the bytes of a tensor here."""


class Remote(Held):
    """A tensor on the server. Made by a session; give it wherever an array may stand in a call.

    ``numpy``, ``torch`` and ``fetch`` download it; nothing else does, so NumPy's own functions
    refuse it. When nobody has it any more the server releases it, with others.
    """

    __slots__ = (
        "__weakref__", "_download", "_filling", "_handle", "_made", "_nbytes", "_step", "_here",
        "_why_empty", "from_torch", "home", "tensor",
    )  # fmt: skip

    home: Home

    def __init__(  # noqa: PLR0913  # all that makes one
        self,
        home: Home,
        download: Download,
        handle: bytes,
        tensor: Tensor,
        nbytes: int,
        *,
        from_torch: bool,
        step: Pending | None = None,
    ) -> None:
        self.home = home
        self.tensor = tensor
        self.from_torch = from_torch
        self._download = download
        self._handle = handle
        self._nbytes = nbytes
        self._step = step
        self._here: Buffer | None = None
        self._why_empty = ""
        self._filling = home.filling
        self._made = time.monotonic()

    def __del__(self) -> None:
        if self._handle and self._step is None and self._here is None:
            self.home.collect(self._handle, self._nbytes)

    def __repr__(self) -> str:
        state = self._why_empty or ("" if self._step is None else "waits for its program")
        seconds = time.monotonic() - self._made
        return (
            f"<Remote {self.dtype} {self.shape} on {self.home.host}, "
            f"{state or f'{seconds:.0f} s old'}>"
        )

    @property
    def shape(self) -> Shape:
        """Its extents."""
        return self.tensor[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype, as NumPy has it."""
        return self.tensor[0]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds on the server."""
        return self._nbytes

    def numpy(self, *, progress: Progress | None = None, timeout: float | None = None) -> AnyArray:
        """Downloads it, as a NumPy array of its own memory.

        progress: called with bytes sent, bytes received, and bytes in all. timeout: in seconds, the
        client's if not given.

        Raises HandleEmptyError, HandleReleasedError, HandleLostError and SessionExpiredError;
        DeadlineError.
        """
        dtype, shape, strides, storage_shape = self.tensor
        spec = TensorSpec(BY_NUMPY[dtype], shape, strides, 0, storage_shape)  # type: ignore[arg-type]
        if self._here is not None:
            return arrays.receive(spec, bytes(self._here)).copy()
        memory = memoryview(fresh(self._nbytes))
        self._download(self, memory, progress, timeout)
        return arrays.receive(spec, memory)

    def torch(self, *, progress: Progress | None = None, timeout: float | None = None) -> Any:
        """Downloads it, as a torch tensor. Raises ImportError without torch; see ``numpy``."""
        return arrays.to_torch(self.numpy(progress=progress, timeout=timeout))

    def fetch(self, *, progress: Progress | None = None, timeout: float | None = None) -> Any:
        """Downloads it: as a torch tensor where tensors of torch came in, else as an array."""
        read = self.torch if self.from_torch else self.numpy
        return read(progress=progress, timeout=timeout)

    def release(self) -> None:
        """Gives its memory back now, not when it is collected. It cannot be used any more.

        Calls that read it already go on. Nothing happens where it was released before.
        """
        if self._step is not None:
            raise self._not_run()
        if self._handle:
            handle, self._handle = self._handle, b""
            if self._here is None:
                self.home.release_now(handle)
            self._here, self._why_empty = None, "released"

    def place(self, within: object) -> Buffer | HandlePart | StepOutput:
        """Where its bytes are for a call; see ``Held.place``."""
        if self._step is not None:
            if self._step.program is within:
                return self._step.output
            raise self._not_run()
        if self._here is not None:
            return self._here
        if not self._handle:
            raise HandleReleasedError(f"remote: expected one that is in use, found {self!r}")
        if self._why_empty:
            raise HandleEmptyError(f"remote: expected one that holds bytes, found {self!r}")
        if self._filling != self.home.filling and not self.home.proves(self._handle):
            raise HandleLostError(
                f"remote: expected bytes that the client can prove, found {self!r}, an output of "
                "a call in the session before this one; run that call again",
                handles=self._handle.hex(),
            )
        return HandlePart(self._handle, 0, self._nbytes)

    def __array__(self, dtype: Any = None, copy: Any = None, /) -> AnyArray:
        """Raises TypeError: an array is made by ``numpy``, which says that it downloads."""
        raise TypeError(f"{self!r}: expected an array, found a Remote; its numpy() downloads it")

    def _not_run(self) -> HandleEmptyError:
        return HandleEmptyError(
            f"remote: expected one whose program has run, found {self!r}; leave its block first"
        )

    if TYPE_CHECKING:  # what operators ask of arrays: a call takes it, nothing else computes it

        def __neg__(self) -> Any: ...
        def __add__(self, other: Any, /) -> Any: ...
        def __sub__(self, other: Any, /) -> Any: ...
        def __mul__(self, other: Any, /) -> Any: ...
        def __truediv__(self, other: Any, /) -> Any: ...
        def __lt__(self, other: Any, /) -> Any: ...


class Pending:
    """What a Remote is as long as its program has not run."""

    __slots__ = ("output", "program")

    def __init__(self, program: object, output: StepOutput) -> None:
        self.program = program
        self.output = output
