"""libopapi: finds the two functions of an operator, and declares how to call them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute, Kind, Parameter
from npucall.errors import OperatorUnavailableError
from npucall_server.devices.cann.library import Failure, Library, load
from npucall_server.settings.npu import AscendPaths

CUSTOM_LIBRARY = Path("op_api", "lib", "libcust_opapi.so")
"""Where a custom package has its operators."""
_BUILT_IN = (
    "libopapi.so",
    "libaclnn_ops_infer.so",
    "libaclnn_ops_train.so",
    "libaclnn_math.so",
    "libaclnn_sparse.so",
    "libaclnn_fft.so",
    "libaclnn_rand.so",
)
_C_TYPES: dict[Kind, Any] = {
    Kind.INT64: ctypes.c_int64,
    Kind.INT32: ctypes.c_int32,
    Kind.INT: ctypes.c_int,
    Kind.INT8: ctypes.c_int8,
    Kind.UINT64: ctypes.c_uint64,
    Kind.BOOL: ctypes.c_bool,
    Kind.FLOAT: ctypes.c_float,
    Kind.DOUBLE: ctypes.c_double,
    Kind.DTYPE: ctypes.c_int,
    Kind.STRING: ctypes.c_char_p,
}
"""The C types of attributes that are passed by value. All others are pointers to objects."""
_BEHIND_ALL = (ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_void_p))
_PHASE_TWO = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class OpApiFunction:
    """The two phases of one operator, both from the same library."""

    name: str
    library: str
    """Path of the library."""
    custom: bool
    """Whether a custom package has it, not CANN itself."""
    get_workspace_size: Callable[..., None]
    execute: Callable[..., None]


@dataclass
class OpApi:
    """The libraries of operators on this host, in CANN's order [src:library-search].

    A symbol counts only if the same library has both phases.
    """

    paths: AscendPaths
    failure: Failure
    forget: Callable[[], object]
    """Clears the thread's last error before each phase. Otherwise an error that the library had
    tolerated would be reported as the cause of a later failure."""
    notes: list[str] = field(default_factory=list)
    """Libraries that were skipped or that belong to another user, and why."""
    _bound: dict[str, OpApiFunction] = field(default_factory=dict)

    def function(self, operator: Operator[Any, Any]) -> OpApiFunction | None:
        """The two phases of an operator with its argument types, or None."""
        name = operator.name
        if name not in self._bound:
            found = self.find(name)
            if found is None:
                return None
            library, custom = found
            self._bound[name] = self._bind(operator, library, custom=custom)
        return self._bound[name]

    def needed(self, operator: Operator[Any, Any]) -> OpApiFunction:
        """As ``function``, but raises OperatorUnavailableError if no library has the phases."""
        found = self.function(operator)
        if found is None:
            raise OperatorUnavailableError(
                f"operator: expected {operator.name} in a library of this host, found none"
            )
        return found

    def find(self, name: str) -> tuple[Library, bool] | None:
        """The library that has both phases of an operator, and whether it is a custom one."""
        phase_one = f"{name}GetWorkspaceSize"
        for library in self._custom:
            there = library.defines(phase_one) and library.defines(name)
            if there and self._owner_allows(Path(library.path)):
                return library, True
        for library in self._built_in():
            if library.find(phase_one) and library.find(name):
                return library, False
        return None

    @cached_property
    def _custom(self) -> list[Library]:
        """Custom packages: those of the environment, then those of the configuration, in order."""
        files = [Path(entry, CUSTOM_LIBRARY) for entry in self.paths.custom]
        if self.paths.opp is not None:
            vendors = self.paths.opp / "vendors"
            files += (vendors / name / CUSTOM_LIBRARY for name in load_priority(vendors))
        opened = (self._open(str(file.resolve())) for file in files if file.exists())
        return [library for library in opened if library]

    def _built_in(self) -> Iterator[Library]:
        """CANN's own libraries. Each is opened only if no earlier one has the symbol."""
        yield from self._split
        for name in _BUILT_IN:
            if (library := self._open_once(name)) is not None:
                yield library

    @cached_property
    def _split(self) -> list[Library]:
        """One library for each of CANN's repositories, from CANN 8.5 on, in the folder's order."""
        if self.paths.home is None:
            return []
        folder = self.paths.home / "lib64"
        try:
            entries = [entry for entry in os.scandir(folder.resolve()) if entry.is_file()]
        except OSError:
            return []
        names = [
            e.name for e in entries if e.name.startswith("libopapi_") and e.name.endswith(".so")
        ]
        return [library for name in names if (library := self._open_once(name)) is not None]

    @cached_property
    def _opened(self) -> dict[str, Library | None]:
        return {}

    def _open_once(self, name: str) -> Library | None:
        """Opens a library by name: through the loader's path, or else in the toolkit's folder."""
        if name not in self._opened:
            there = self.paths.home / "lib64" / name if self.paths.home else None
            library = self._open(name, quiet=True)
            if library is None and there is not None and there.exists():
                library = self._open(str(there))
            self._opened[name] = library
        return self._opened[name]

    def _open(self, path: str, *, quiet: bool = False) -> Library | None:
        try:
            return load(path)
        except OSError as error:
            if not quiet:
                self.notes.append(f"{path}: cannot be opened: {error}")
            return None

    def _owner_allows(self, path: Path) -> bool:
        """CANN's owner check of custom packages [src:library-search].

        Root accepts only libraries that belong to root. Other users accept their own libraries,
        and those of root with a warning.
        """
        owner, own = path.stat().st_uid, os.geteuid()
        if owner == own:
            return True
        said = f"{path}: owned by user {owner}, this process runs as {own}"
        allowed = owner == 0
        note = f"{said}; taken all the same" if allowed else f"{said}; passed over, as CANN does"
        if note not in self.notes:
            self.notes.append(note)
        return allowed

    def _bind(
        self, operator: Operator[Any, Any], library: Library, *, custom: bool
    ) -> OpApiFunction:
        name = operator.name
        types = [_c_type(parameter) for parameter in operator.parameters]
        return OpApiFunction(
            name,
            library.path,
            custom,
            self._status_function(library, f"{name}GetWorkspaceSize", (*types, *_BEHIND_ALL)),
            self._status_function(library, name, _PHASE_TWO),
        )

    def _status_function(
        self, library: Library, name: str, types: tuple[Any, ...]
    ) -> Callable[..., None]:
        raw = library.find(name)
        raw.argtypes, raw.restype = types, ctypes.c_int32
        failure, forget = self.failure, self.forget

        def call(*arguments: Any) -> None:
            forget()
            status = raw(*arguments)
            if status:
                raise failure(name, status)

        return call


def _c_type(parameter: Parameter) -> Any:
    if isinstance(parameter, Attribute):
        return _C_TYPES.get(parameter.kind, ctypes.c_void_p)
    return ctypes.c_void_p


def load_priority(vendors: Path) -> list[str]:
    """The vendors that ``config.ini`` names, in its order. Blanks are kept."""
    try:
        lines = (vendors / "config.ini").read_bytes().decode(errors="replace").split("\n")
    except OSError:
        return []
    start = "load_priority="
    named = next((line for line in lines if line.startswith(start)), start)
    return [name for name in named.removeprefix(start).split(",") if name]
