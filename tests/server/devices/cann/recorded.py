"""libnnopbase's functions, which note what they are given, and calls to make descriptors of."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Input
from npucall.declare.prepare import Prepared, prepare
from npucall.errors import DeviceError
from npucall.products import A2
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from npucall.declare.parameters import Parameter


class Base:
    """The functions of libnnopbase, which note what they are given."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, ...]] = {}
        self.destroyed: list[tuple[str, int]] = []
        self.moved: list[tuple[int, int]] = []
        self.failing: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int | None:
            if name.startswith("aclDestroy"):
                self.destroyed.append((name.removeprefix("aclDestroy"), arguments[0]))
            if name in self.failing:
                raise DeviceError(name)
            if name == "aclSetRawTensorAddr":
                self.moved.append(arguments)  # type: ignore[arg-type]
            if name.startswith(("aclDestroy", "aclSet")):
                return None
            handle = len(self.made) + 1
            self.made[handle] = (name.removeprefix("aclCreate"), *map(plain, arguments))
            return handle

        return call


def plain(argument: Any) -> Any:
    """An array's values, which live no longer than the call."""
    return list(argument) if isinstance(argument, ctypes.Array) else argument


def prepared(parameters: tuple[Parameter, ...], arguments: dict[str, Any]) -> Prepared:
    operator = prototype_only("aclnnX", parameters, "")
    stored = tuple(
        place
        for p in parameters
        if isinstance(p, Input) and isinstance(arguments.get(p.name), (TensorSpec, tuple))
        for place in places(p.name, arguments[p.name])
    )
    return prepare(Call(operator, arguments, stored), A2, Catalogue([operator]))


def places(name: str, value: Any) -> list[str]:
    return [f"{name}[{i}]" for i in range(len(value))] if isinstance(value, tuple) else [name]
