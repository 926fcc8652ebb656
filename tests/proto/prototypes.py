"""Operators known by their C prototype alone, and calls of them as they arrive from the wire."""

from typing import Any

from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator, prototype_only
from npucall.declare.parameters import Input, Kind, Output, parameter_of
from npucall.declare.prepare import Prepared
from npucall.dtypes import FLOAT
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls, decode, encode

KINDS = {
    "int64": Kind.INT64,
    "int32": Kind.INT32,
    "int": Kind.INT,
    "int8": Kind.INT8,
    "uint64": Kind.UINT64,
    "flag": Kind.BOOL,
    "single": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "dtype": Kind.DTYPE,
    "text": Kind.STRING,
    "scalar": Kind.SCALAR,
    "scalars": Kind.SCALAR_LIST,
    "integers": Kind.INT_ARRAY,
    "numbers": Kind.FLOAT_ARRAY,
    "booleans": Kind.BOOL_ARRAY,
}

_ROLES = {"in": (Input, False), "out": (Output, False), "in/out": (Output, True)}


def operator(name: str, **parameters: str) -> Operator[..., Any]:
    """An operator by its C types; those of tensors begin with their role: ``out aclTensor*``."""
    made = []
    for key, text in parameters.items():
        first, _, rest = text.partition(" ")
        role, in_place = _ROLES.get(first, (None, False))
        made.append(parameter_of(key, rest if role else text, role, in_place=in_place))
    return prototype_only(name, tuple(made), f"{name}.h")


IN, OUT, LIST = "in const aclTensor*", "out aclTensor*", "aclTensorList*"
EVERY_KIND = operator(
    "aclnnEveryKind", **{name: kind.value for name, kind in KINDS.items()}, out=OUT
)
CAT = operator("aclnnCat", tensors=f"in const {LIST}", dim="int64_t", out=OUT)
SPLIT = operator(
    "aclnnSplitWithSize", self=IN, splitSize="const aclIntArray*", dim="int64_t", out=f"out {LIST}"
)
ADD_IN_PLACE = operator(
    "aclnnInplaceVendorAdd", selfRef="in/out const aclTensor*", other=IN, alpha="const aclScalar*"
)
CATALOGUE = Catalogue([EVERY_KIND, CAT, SPLIT, ADD_IN_PLACE])

PAIR = TensorSpec(FLOAT, (2,))
TRIPLE = TensorSpec(FLOAT, (3,))
STRIDED = TensorSpec(FLOAT, (2,), (2,), 1, (5,))
"""Two elements with a gap, and gaps round them."""

Roles = dict[str, "type[Input | Output]"]


def decoded(
    operator: Operator[..., Any], *stored: str, roles: Roles | None = None, **given: Any
) -> Call:
    """What a server finds in the bytes of a call."""
    return decode(encode(operator.name, "", given, stored, roles), CATALOGUE)


def prepared(
    operator: Operator[..., Any], *stored: str, roles: Roles | None = None, **given: Any
) -> Prepared:
    """The call as a server prepares it from its bytes."""
    data = encode(operator.name, "", given, stored, roles)
    return PreparedCalls(CATALOGUE, A2, "").of(data)


def raw(operator: Operator[..., Any], *arguments: pb.Argument) -> Call:
    """A call whose message is typed by hand."""
    call = pb.Call(operator=operator.name, arguments=arguments)
    return decode(call.SerializeToString(), CATALOGUE)
