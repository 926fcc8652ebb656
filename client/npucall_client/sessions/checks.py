"""Finds out what a call will give before it is sent, by the checks that its server makes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.declare.catalogue import Catalogue
from npucall.declare.prepare import Prepared, once_a_call
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.products import PRODUCTS, product_of
from npucall.wire.calls import PreparedCalls
from npucall_client.calls.hints import add_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.declare.declaration import Operator
    from npucall.v1 import operator_service_pb2 as pb
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.tensors import Tensor


class ExpectedOutput(NamedTuple):
    """An output that a call will give."""

    tensor: Tensor
    nbytes: int
    """Of its storage."""


class Checks:
    """The rules of a server's product, in this process.

    ``declared``: returns an operator that only the server knows.
    """

    def __init__(
        self, info: pb.GetServerInfoResponse, declared: Callable[[str], Operator[Any, Any]]
    ) -> None:
        self._soc = info.server.soc
        # By the short name: "Ascend910B" as a name of a SoC is another product.
        named = (product for product in PRODUCTS if product.soc == info.product)
        self._product = next(named, None) or product_of(info.server.soc)
        self._variant = info.default_variant
        self._calls = PreparedCalls(CATALOGUE, self._product, self._variant)
        self._of_operator: dict[str, PreparedCalls] = {}
        self._declared = declared

    def results_of(self, call: BoundCall) -> Mapping[str, ExpectedOutput]:
        """The outputs by name. Raises what the server would raise before it runs the call."""
        try:
            return _results_of(self._of(call.operator).of(call.call))
        except NpucallError as error:
            error.details.setdefault("soc", self._soc)
            add_hint(error, call)
            raise

    def _of(self, operator: str) -> PreparedCalls:
        calls = self._of_operator.get(operator)
        if calls is None:
            calls = self._calls
            if not CATALOGUE.of_name(operator):
                only = Catalogue([self._declared(operator)])
                calls = PreparedCalls(only, self._product, self._variant)
            self._of_operator[operator] = calls
        return calls


@once_a_call
def _results_of(call: Prepared) -> Mapping[str, ExpectedOutput]:
    return {
        name: ExpectedOutput(
            (
                spec.dtype.numpy,
                spec.shape,
                None if spec.row_major else spec.strides,
                None if spec.row_major else spec.storage_shape,
            ),
            prod(spec.storage_shape) * spec.dtype.itemsize,
        )
        for name, spec in call.outputs.items()
    }
