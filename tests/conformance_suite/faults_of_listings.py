"""Faults in a server's operators, its listing, its defaults and its replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall import operators
from npucall.declare import rules
from npucall.declare.catalogue import Catalogue
from npucall.declare.draft import Draft
from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOATS, HALF_AND_SINGLE
from npucall.operators.gelu_v2 import gelu_v2
from npucall.operators.glu import glu
from npucall.operators.kl_div import kl_div
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.logit import logit
from npucall.operators.smooth_l1_loss import smooth_l1_loss
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950
from npucall.v1 import operator_service_pb2 as pb
from npucall_client import local

from .seeded import AnyOperator, Seed, changed, exchanged, fault, without

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

FEWER = dict.fromkeys(kl_div.products, HALF_AND_SINGLE)


def forgotten(operator: AnyOperator) -> Seed:
    """The server does not have the operator."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        rest = (each for each in operators.CATALOGUE if each.title != operator.title)
        monkeypatch.setattr(local, "CATALOGUE", Catalogue(rest))

    return seed


def unlisted(operator: AnyOperator) -> Seed:
    """The server has the operator, but does not list it."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        right = local.LocalTransport.operators

        async def listed(self: Any, timeout: float) -> list[pb.OperatorInfo]:
            return [each for each in await right(self, timeout) if each.name != operator.name]

        monkeypatch.setattr(local.LocalTransport, "operators", listed)

    return seed


def listed(operator: AnyOperator, change: Callable[[pb.OperatorInfo], None]) -> Seed:
    """The server lists something else of it."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        right = local.describe

        def describe(described: AnyOperator, *more: Any) -> pb.OperatorInfo:
            info = right(described, *more)
            if described.title == operator.title:
                change(info)
            return info

        monkeypatch.setattr(local, "describe", describe)

    return seed


def said(operator: AnyOperator, change: Callable[[pb.Reply], None]) -> Seed:
    """Replies are wrong about a call that is computed correctly."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        right = local.encode_reply

        def encode(call: Any, server: Any) -> bytes:
            message = pb.Reply.FromString(right(call, server))
            if call.operator.title == operator.title:
                change(message)
            return message.SerializeToString()

        monkeypatch.setattr(local, "encode_reply", encode)

    return seed


def otherwise(operator: AnyOperator, name: str, value: Any) -> Seed:
    """An attribute that a call leaves out has another value than the listed default."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        right = Draft.argument

        def argument(self: Draft, asked: str) -> Any:
            found = right(self, asked)
            left_out = asked == name and asked not in self._arguments
            return value if left_out and self.operator.title == operator.title else found

        monkeypatch.setattr(Draft, "argument", argument)

    return seed


def swapped(info: pb.OperatorInfo) -> None:
    first, second, *rest = map(pb.ParameterInfo.FromString, serialised(info))
    del info.parameters[:]
    info.parameters.extend((second, first, *rest))


def serialised(info: pb.OperatorInfo) -> list[bytes]:
    return [each.SerializeToString() for each in info.parameters]


def an_input(info: pb.OperatorInfo) -> None:
    info.parameters[-1].role = pb.ROLE_INPUT


def another_default(info: pb.OperatorInfo) -> None:
    (beta,) = (each for each in info.parameters if each.name == "beta")
    beta.number = 0.5


def unread(info: pb.OperatorInfo) -> None:
    info.parameters[0].read = False


def only_listed(info: pb.OperatorInfo) -> None:
    info.products.add(soc="Ascend310P", dtypes=[FLOAT.wire])


def of_kernel(message: pb.Reply) -> None:
    message.kernel_dtype = BF16.wire  # type: ignore[assignment]


def of_variant(message: pb.Reply) -> None:
    message.variant = "community"


LISTINGS = (
    fault(
        "the server forgot Glu", glu.name, forgotten(glu),
        found_in="listing products defaults grid",
    ),
    fault(
        "Glu is there and not listed", glu.name, unlisted(glu), found_in="listing", spared="grid"
    ),
    fault(
        "KlDiv takes and lists no BF16", kl_div.name,
        changed(kl_div, products={**kl_div.products, **FEWER}),
        found_in="listing grid", spared="products",
    ),
    fault(
        "DOUBLE is taken where it should be refused", kl_div_backward.name,
        exchanged(
            kl_div_backward, "dtype of grad_output",
            lambda rule: rules.supported(*rule.blames, besides=(DOUBLE,)),
        ),
        found_in="products", spared="listing grid",
    ),
    fault(
        "DOUBLE is taken and listed", kl_div_backward.name,
        changed(kl_div_backward, products=dict.fromkeys((A2, A3, ASCEND_950), (*FLOATS, DOUBLE))),
        found_in="listing products", spared="grid",
    ),
    fault(
        "Logit runs on a product that does not have it", logit.name,
        changed(logit, products={**logit.products, ASCEND_310P: HALF_AND_SINGLE}),
        found_in="listing products", spared="grid", soc="Ascend310P3",
    ),
    fault(
        "Logit is listed for a product that does not have it", logit.name,
        listed(logit, only_listed), found_in="listing", spared="grid products",
    ),
    fault(
        "reduction is none where it is left out", kl_div.name, otherwise(kl_div, "reduction", 0),
        found_in="defaults", spared="listing grid",
    ),
    fault(
        "parameters are listed in another order", kl_div_backward.name,
        listed(kl_div_backward, swapped), found_in="listing", spared="grid",
    ),
    fault(
        "the output is listed as an input", kl_div.name, listed(kl_div, an_input),
        found_in="listing", spared="grid",
    ),
    fault(
        "another default is listed", smooth_l1_loss.name, listed(smooth_l1_loss, another_default),
        found_in="listing", spared="defaults",
    ),
    fault(
        "an input is listed as unread", kl_div.name, listed(kl_div, unread),
        found_in="listing", spared="grid",
    ),
    fault(
        "replies name another variant", "aclnnKlDivTargetBackward.builtin",
        said(kl_div_target_backward_builtin, of_variant),
        found_in="grid defaults invalid", spared="listing",
    ),
    fault(
        "replies name another kernel dtype", kl_div.name, said(kl_div, of_kernel),
        found_in="grid layout defaults invalid", spared="listing",
    ),
    fault(
        "a warning is missing", gelu_v2.name, without(gelu_v2, "warning unless"),
        found_in="reduction", spared="grid listing",
    ),
    fault(
        "replies warn of what is right", kl_div_backward.name,
        said(kl_div_backward, lambda m: m.warnings.add(parameter="reduction", message="reduction")),
        found_in="grid", spared="listing reduction",
    ),
)  # fmt: skip
