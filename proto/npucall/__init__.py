"""Runs operators of Ascend NPUs: arrays in, arrays out.

::

    import npucall

    with npucall.connect("127.0.0.1:50051") as npu:
        gradient = npu.run(npucall.ops.kl_div_backward, grad_output, student, target)

This distribution is the contract: what client and server must agree on, and how operators are
computed. ``connect``, ``Client``, ``aio``, ``torch`` and whatever else calls a server come from the
distribution ``npucall-client``, and are here where that is installed.

Its modules, from the top::

    ops                  each operator by its name in Python
    compute              the CPU reference
    wire                 values and their bytes
    operators            the catalogue
    programs             the steps of a program, prepared and checked as a whole
    declare              how an operator is declared, and how a call of it is checked
    handles              the handles of a session: their states, what fills and what reads them
    exchange             a streamed call: its states, its frames as values, chunks
    places               where the bytes of a call can be
    tensors              specs of tensors, and views of their bytes
    dtypes, products     the table of dtypes; the Ascend products
    membership           times of a pool, and what an address is
    errors               one class for each thing that can go wrong
    statuses             the statuses of CANN
    limits               every limit of the contract
    memory               new memory; freed memory that the process keeps
    texts                texts of others, cut; sentences that many say
    environment          environment variables; files that are read again when they change
    v1                   the .proto files, and what is generated from them
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

if not TYPE_CHECKING:  # type checkers read __init__.pyi

    def __getattr__(name: str) -> object:
        """The version, a module, or a name of the client, loaded where somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = f"{__name__}.{name}"
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
        value = globals()[name] = _of_others(name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), "errors", "ops", *chain(*map(dir, _others()))})


def _others() -> list[ModuleType]:
    """The packages whose names are also here: the client's."""
    points = import_module("importlib.metadata").entry_points(group=__name__)
    return [point.load() for point in points]


def _of_others(name: str) -> object:
    others = _others()
    for other in others:
        if name in dir(other):
            return getattr(other, name)
    if others:
        hint = import_module("npucall.texts").did_you_mean(name, chain(*map(dir, others)))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    raise ModuleNotFoundError(f"npucall.{name}: the client is missing; pip install npucall-client")
