"""A fake of libnnopbase, which records its calls, and calls to make descriptors of."""

import ctypes
from typing import Any

from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Input, Parameter
from npucall.declare.prepare import Prepared, prepare
from npucall.errors import DeviceError
from npucall.products import A2
from npucall.tensors import TensorSpec


class FakeBase:
    """The functions of libnnopbase, which note what they are given."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, ...]] = {}
        self.destroyed: list[tuple[str, int]] = []
        self.moved: list[tuple[Any, ...]] = []
        self.failing: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int | None:
            if name.startswith("aclDestroy"):
                self.destroyed.append((name.removeprefix("aclDestroy"), arguments[0]))
            if name in self.failing:
                raise DeviceError(name)
            if name == "aclSetRawTensorAddr":
                self.moved.append(arguments)
            if name.startswith(("aclDestroy", "aclSet")):
                return None
            handle = len(self.made) + 1
            self.made[handle] = (name.removeprefix("aclCreate"), *map(_plain, arguments))
            return handle

        return call


def _plain(argument: Any) -> Any:
    """An array's values, which live no longer than the call."""
    return list(argument) if isinstance(argument, ctypes.Array) else argument


def prepared(*parameters: Parameter, **arguments: Any) -> Prepared:
    """A call of an operator with these parameters, whose tensors are all sent."""
    operator = prototype_only("aclnnX", parameters, "")
    stored = [
        place
        for p in parameters
        if isinstance(p, Input)
        for place in _places(p.name, arguments.get(p.name))
    ]
    return prepare(Call(operator, arguments, tuple(stored)), A2, Catalogue([operator]))


def _places(name: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [f"{name}[{i}]" for i in range(len(value))]
    return [name] if isinstance(value, TensorSpec) else []
