"""What a server says beside its numbers: replies, plans, listings, itself, and timings."""

from __future__ import annotations

from typing import Any

from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import calls
from npucall_client import local
from npucall_server.execution import life
from npucall_server.services import operators as service

from .planted import both, changed, given, kind, listing, reply, run

planted = kind("replies, listings, plans, timings")


def of(name: str, wrong: Any) -> Any:
    """Of one operator alone."""

    def change(message: Any) -> None:
        if message.name == f"aclnn{name}":
            wrong(message)

    return listing(change)


def parameters(name: str, wrong: Any) -> Any:
    def change(message: Any) -> None:
        for parameter in message.parameters:
            wrong(parameter)

    return of(name, change)


def without_dtype(message: Any) -> None:
    for product in message.products:
        del product.dtypes[-1:]


def on_more(message: Any) -> None:
    message.products.add(soc="Ascend310", dtypes=[1], legacy=True)


def legacy_is_not(message: Any) -> None:
    for product in message.products:
        product.legacy = False


def exchanged(message: Any) -> None:
    first, second = message.parameters[0], message.parameters[1]
    kept = pb.ParameterInfo()
    kept.CopyFrom(first)
    first.CopyFrom(second)
    second.CopyFrom(kept)


def other_default(parameter: Any) -> None:
    if parameter.name == "reduction":
        parameter.integer = 0


def no_default(parameter: Any) -> None:
    if parameter.WhichOneof("default_value"):
        parameter.ClearField(parameter.WhichOneof("default_value"))


def outputs_exchanged(message: Any, call: Any) -> None:
    if len(message.outputs) == 2:  # two of them
        first, second = message.outputs[0].name, message.outputs[1].name
        message.outputs[0].name, message.outputs[1].name = second, first


def warning(text: str) -> Any:
    def change(message: Any, call: Any) -> None:
        message.warnings.add(parameter="reduction", message=text)

    return change


def bfloat16_is_float16(message: Any, call: Any) -> None:
    for output in message.outputs:
        if output.tensor.dtype == 28:  # BF16 on the wire
            output.tensor.dtype = 2


def another_shape(message: Any, call: Any) -> None:
    for output in message.outputs:
        if len(output.tensor.shape) > 1 and not output.tensor.strides:
            shape = list(reversed(output.tensor.shape))
            del output.tensor.shape[:]
            output.tensor.shape.extend(shape)


def blank_variant(message: Any, call: Any) -> None:
    message.variant = ""


def kernel_is_float(message: Any, call: Any) -> None:
    if message.kernel_dtype:
        message.kernel_dtype = 1


def kernel_unsaid(message: Any, call: Any) -> None:
    message.kernel_dtype = 0


def other_soc(message: Any, call: Any) -> None:
    message.server.soc = "Ascend910A"


def planning(wrong: Any) -> Any:
    """Plans are changed by ``wrong(answer)``."""

    def plant(patch: Any) -> None:
        right = local.LocalTransport.plan_of

        def plan_of(self: Any, call: Any) -> Any:
            answer = right(self, call)
            wrong(answer, call)
            return answer

        patch.setattr(local.LocalTransport, "plan_of", plan_of)
        method = service.OperatorService.plan

        def plan(self: Any, *asked: Any) -> bytes:
            answer = pb.PlanResponse.FromString(method(self, *asked))
            wrong(answer, None)
            return answer.SerializeToString()

        patch.setattr(service.OperatorService, "plan", plan)

    return plant


def plan_without_warnings(answer: Any, call: Any) -> None:
    del answer.reply.warnings[:]


def plan_as_float(answer: Any, call: Any) -> None:
    for output in answer.reply.outputs:
        output.tensor.dtype = 1


def plan_with_workspace(answer: Any, call: Any) -> None:
    answer.workspace_bytes = 2**63


def plan_transposed(answer: Any, call: Any) -> None:
    another_shape(answer.reply, call)


def timing(wrong: Any) -> Any:
    """The timings of answers are changed by ``wrong(timings)``."""

    def plant(patch: Any) -> None:
        for module in (local, life):
            right = module.encode_timings
            patch.setattr(
                module, "encode_timings", lambda timings, right=right: right(wrong(timings))
            )

    return plant


def info(wrong: Any) -> Any:
    def plant(patch: Any) -> None:
        right = local.LocalTransport.server_info

        async def server_info(self: Any, timeout: float) -> Any:
            answer = await right(self, timeout)
            wrong(answer)
            return answer

        patch.setattr(local.LocalTransport, "server_info", server_info)
        method = service.OperatorService.get_server_info

        def get(self: Any, *asked: Any) -> bytes:
            answer = pb.GetServerInfoResponse.FromString(method(self, *asked))
            wrong(answer)
            return answer.SerializeToString()

        patch.setattr(service.OperatorService, "get_server_info", get)

    return plant


def another_variant(patch: Any) -> None:
    """Whatever variant is asked for, the default one runs."""
    right = calls.decode

    def decode(data: bytes, catalogue: Any, default_variant: str = "") -> Any:
        message = pb.Call.FromString(data)
        if message.variant == "builtin":
            message.variant = "community"
        return right(message.SerializeToString(), catalogue, default_variant)

    patch.setattr(calls, "decode", decode)


def variant_in_name_alone(patch: Any) -> None:
    """The community variant computes what the documented one does, on other shapes."""
    both(
        given("KlDivTargetBackward.community", reduction=lambda r: 0 if r == 2 else r),
        changed("KlDivTargetBackward.community", kernel_dtype=lambda _: lambda draft: FLOAT),
    )(patch)


def unread_refused(patch: Any) -> None:
    """The storage of an input that no formula reads is refused."""
    right = calls.prepare

    def prepare(call: Any, *rest: Any) -> Any:
        unread = [p.name for p in call.operator.inputs if not p.read and p.name in call.stored]
        if unread:
            raise NpucallError(f"{unread[0]}: is not read", parameter=unread[0])
        return right(call, *rest)

    patch.setattr(calls, "prepare", prepare)


def unread_needed(patch: Any) -> None:
    """An input that no formula reads has to be sent all the same."""
    right = calls.prepare

    def prepare(call: Any, *rest: Any) -> Any:
        prepared = right(call, *rest)
        for parameter in call.operator.inputs:
            if (
                not parameter.read
                and parameter.name in call.arguments
                and parameter.name not in call.stored
            ):
                raise NpucallError(f"{parameter.name}: is not sent", parameter=parameter.name)
        return prepared

    patch.setattr(calls, "prepare", prepare)


def unread_counts(right: Any, call: Any, storages: Any) -> Any:
    """Where an unread input is sent its bytes are added to the result."""
    answers = right(call, storages)
    unread = [p.name for p in call.operator.inputs if not p.read and p.name in storages]
    if unread and not call.done:
        for answer in answers:
            place = memoryview(answer).cast("B")
            if len(place):
                place[-1] ^= 1
    return answers


def warnings_gone(message: Any, call: Any) -> None:
    del message.warnings[:]


def default(name: str, attribute: str, value: Any) -> Any:
    """What an attribute is where a call does not mention it; it is listed as it should be."""

    def plant(patch: Any) -> None:
        right = Draft.argument

        def argument(self: Any, asked: str) -> Any:
            if asked == attribute and self.operator.name == f"aclnn{name}":
                return self._arguments.get(asked, value)
            return right(self, asked)

        patch.setattr(Draft, "argument", argument)

    return plant


FAULTS = (
    planted("a listing lacks a dtype", "SmoothL1Loss", of("SmoothL1Loss", without_dtype)),
    planted("a listing has a product more", "Sigmoid", of("Sigmoid", on_more)),
    planted("a listing calls no product legacy", "Add", of("Add", legacy_is_not)),
    planted(
        "a listing says unavailable",
        "Tanh",
        of(
            "Tanh",
            lambda m: (
                setattr(m, "available", False),
                setattr(m, "unavailable_because", "no kernel"),
            ),
        ),
    ),
    planted(
        "a listing has parameters in another order", "KlDivBackward", of("KlDivBackward", exchanged)
    ),
    planted("a listing has another default", "MseLoss", parameters("MseLoss", other_default)),
    planted("a listing has no defaults", "Logit", parameters("Logit", no_default)),
    planted(
        "a listing has another C type",
        "Muls",
        parameters("Muls", lambda p: setattr(p, "c_type", "double") if p.name == "other" else None),
    ),
    planted(
        "a listing has another name in C",
        "EluBackward",
        parameters(
            "EluBackward", lambda p: setattr(p, "c_name", p.name) if "_" in p.name else None
        ),
    ),
    planted(
        "a listing calls an unread input read",
        "NLLLossBackward",
        parameters(
            "NLLLossBackward", lambda p: setattr(p, "read", True) if p.name == "self" else None
        ),
    ),
    planted(
        "a listing calls an optional input required",
        "BinaryCrossEntropy",
        parameters("BinaryCrossEntropy", lambda p: setattr(p, "optional", False)),
    ),
    planted(
        "a listing has another prototype",
        "Matmul",
        of("Matmul", lambda m: setattr(m, "prototype", m.prototype.replace("int8_t", "int64_t"))),
    ),
    planted(
        "a listing says that there is no reference",
        "Gelu",
        of("Gelu", lambda m: setattr(m, "reference", False)),
    ),
    planted(
        "a listing has another variant",
        "KlDivTargetBackward.documented",
        of(
            "KlDivTargetBackward",
            lambda m: setattr(m, "variant", "builtin") if m.variant == "documented" else None,
        ),
    ),
    planted(
        "a listing has no rules",
        "Div",
        of("Div", lambda m: m.ClearField("rules")),
        allowed="rules are words for people; what is checked is judged by calls",
    ),
    planted("a reply lacks its warnings", "KlDivBackward", reply(warnings_gone)),
    planted("a reply warns of nothing", "Softmax", reply(warning("reduction: is slow"))),
    planted("a reply has outputs exchanged", "PreluBackward", reply(outputs_exchanged)),
    planted("a reply calls BF16 FLOAT16", "Silu", reply(bfloat16_is_float16)),
    planted("a reply has the shape turned round", "LogSoftmax", reply(another_shape)),
    planted("a reply has no variant", "KlDivTargetBackward.builtin", reply(blank_variant)),
    planted("a reply says that FLOAT was computed", "Hardswish", reply(kernel_is_float)),
    planted("a reply does not say what was computed", "Exp", reply(kernel_unsaid)),
    planted("a reply comes from another card", "Mul", reply(other_soc)),
    planted("a plan has no warnings", "GeluV2", planning(plan_without_warnings)),
    planted("a plan says FLOAT", "Cast", planning(plan_as_float)),
    planted("a plan wants more memory than there is", "ReduceSum", planning(plan_with_workspace)),
    planted("a plan turns shapes round", "Matmul", planning(plan_transposed)),
    planted("running takes no time", "Log", timing(lambda t: t._replace(run_ns=0))),
    planted(
        "running takes longer than the call",
        "Elu",
        timing(lambda t: t._replace(run_ns=t.run_ns + 10**12)),
    ),
    planted(
        "times are in microseconds",
        "Sub",
        timing(lambda t: type(t)(*(each * 1000 for each in t))),
        over="socket",
    ),
    planted("waiting takes 2 to the 63", "Threshold", timing(lambda t: t._replace(queue_ns=2**63))),
    planted(
        "a server says another product",
        "NLLLoss SiluBackward",
        info(lambda a: setattr(a, "product", "Ascend950")),
    ),
    planted(
        "a server says another default variant",
        "KlDivTargetBackward",
        info(lambda a: setattr(a, "default_variant", "builtin")),
    ),
    planted(
        "another variant runs than is asked for", "KlDivTargetBackward.builtin", another_variant
    ),
    planted(
        "a variant computes with another kernel",
        "KlDivTargetBackward.community",
        variant_in_name_alone,
    ),
    planted("an unread input is refused", "KlDivBackward", unread_refused),
    planted("an unread input has to be sent", "NLLLoss2dBackward", unread_needed),
    planted(
        "an unread input counts", "BinaryCrossEntropyWithLogitsTargetBackward", run(unread_counts)
    ),
    planted("a default of a reduction is none", "L1Loss", default("L1Loss", "reduction", 0)),
    planted("a default of a dimension is 0", "Glu", default("Glu", "dim", 0)),
    planted("a default of a margin is 1e-6", "Logit", default("Logit", "eps", 1e-6)),
    planted(
        "a default of an ignored label is 1", "NLLLoss2d", default("NLLLoss2d", "ignore_index", 1)
    ),
    planted(
        "a default of beta is 0.1",
        "SmoothL1LossBackward",
        default("SmoothL1LossBackward", "beta", 0.1),
    ),
    planted("a default of keep_dim is true", "Mean", default("Mean", "keep_dim", True)),
)
