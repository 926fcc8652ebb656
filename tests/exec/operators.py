"""A program in C++ that calls every declared operator once, and prints the bytes of its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npucall.compute import evaluate
from npucall.declare.parameters import Attribute, Kind, Scalar, c_name
from npucall.declare.prepare import Prepared
from npucall.declare.samples import sample, sample_storages
from npucall.operators import CATALOGUE
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import TensorSpec, view
from npucall_exec.headers import header_of
from npucall_exec.launches import VARIANTS, saturate

_START = """\
#include <cstdio>
#include <vector>

#include "acl/acl.h"

using Shape = std::initializer_list<int64_t>;

static int ok(int status) {
    if (status != 0) std::printf("%d %s\\n", status, aclGetRecentErrMsg());
    return status;
}

struct Place {
    void *memory = nullptr;
    size_t size;
    Place(size_t bytes, const char *data) : size(bytes) {
        if (size == 0 || ok(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST)) != 0) return;
        ok(data == nullptr ? aclrtMemset(memory, size, 0, size)
                           : aclrtMemcpy(memory, size, data, size, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    void print(const char *name) const {
        std::vector<unsigned char> bytes(size);
        ok(aclrtMemcpy(bytes.data(), size, memory, size, ACL_MEMCPY_DEVICE_TO_HOST));
        std::printf("%s ", name);
        for (const unsigned byte : bytes) std::printf("%02x", byte);
        std::printf("\\n");
    }
    aclTensor *tensor(Shape shape, int dtype) const {
        const auto known = static_cast<aclDataType>(dtype);
        return aclCreateTensor(shape.begin(), shape.size(), known, nullptr, 0, ACL_FORMAT_ND,
                               shape.begin(), shape.size(), memory);
    }
};

static aclTensorList *list(std::initializer_list<aclTensor *> tensors) {
    return aclCreateTensorList(tensors.begin(), tensors.size());
}
"""
_CALL = """\
static void call_{name}(aclrtStream stream) {{
{places}\
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    if (ok({name}GetWorkspaceSize({arguments}, &size, &executor)) != 0) return;
    void *workspace = nullptr;
    if (size != 0) ok(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    ok({name}(workspace, size, executor, stream));
    ok(aclrtSynchronizeStream(stream));
{prints}}}
"""
_MAIN = """\
int main() {{
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr));
    ok(aclrtSetDevice(0));
    ok(aclrtCreateStream(&stream));
{calls}}}
"""
_ARRAYS = {Kind.INT_ARRAY: ("int64_t", "Int"), Kind.FLOAT_ARRAY: ("float", "Float"),
           Kind.BOOL_ARRAY: ("bool", "Bool")}  # fmt: skip


def samples() -> list[Prepared]:
    """A small call of each operator, in its first dtype."""
    product = product_of(DEFAULT_SOC)
    names = dict.fromkeys(operator.name for operator in CATALOGUE)
    every = (CATALOGUE.find(name, default=VARIANTS["builtin"]) for name in names)
    return [
        sample(operator, product, CATALOGUE, operator.dtypes_on(product)[0])
        for operator in every
        if operator.dtypes_on(product)
    ]


def program(calls: list[Prepared]) -> str:
    """The program of these calls."""
    headers = sorted({header_of(call.operator) for call in calls})
    includes = "".join(f'#include "aclnnop/{header}"\n' for header in headers)
    bodies = "\n".join(map(_function, calls))
    lines = "".join(f"    call_{call.operator.name}(stream);\n" for call in calls)
    return f"{includes}{_START}\n{bodies}\n{_MAIN.format(calls=lines)}"


def expected(call: Prepared) -> Iterator[str]:
    """The lines that a call prints, as the CPU reference computes it on a stream that saturates."""
    storages = call.storages(list(sample_storages(call, 1).values()))
    for (name, spec), storage in zip(
        call.outputs.items(), evaluate.run(call, storages), strict=True
    ):
        array = view(spec, storage).copy()
        if name in call.unwritten:
            array[np.equal(array, call.unwritten[name])] = 0
        saturate(array)
        yield f"{call.operator.name}.{name} {array.tobytes().hex()}"


def _function(call: Prepared) -> str:
    storages = sample_storages(call, 1)
    places, arguments, prints = "", [], ""
    for parameter in call.operator.parameters:
        name = parameter.name
        if isinstance(parameter, Attribute):
            value = call.values[name]
            text, needed = _value(c_name(parameter), parameter, value)
            places += needed
            arguments.append(text)
            continue
        tensors = []
        for number, place in enumerate(call.lists.get(name, (name,))):
            spec = call.outputs.get(place) or call.inputs.get(place)
            if spec is None:
                tensors.append("nullptr")
                continue
            own = f"{c_name(parameter)}_{number}"
            text = _literal(storages[place]) if place in storages else "nullptr"
            places += f"    const Place {own}({spec.storage_bytes}, {text});\n"
            tensors.append(_tensor(own, spec))
            if place in call.outputs:
                prints += f'    {own}.print("{call.operator.name}.{place}");\n'
        arguments += [f"list({{{', '.join(tensors)}}})"] if name in call.lists else tensors
    return _CALL.format(
        name=call.operator.name, places=places, arguments=", ".join(arguments), prints=prints
    )


def _tensor(place: str, spec: TensorSpec) -> str:
    return f"{place}.tensor({{{', '.join(map(str, spec.shape))}}}, {spec.dtype.acl})"


def _literal(data: Any) -> str:
    """Bytes as a literal, which compiles faster than their numbers."""
    return '"' + "".join(f"\\{byte:03o}" for byte in bytes(data)) + '"'


def _value(name: str, attribute: Attribute, value: Any) -> tuple[str, str]:
    """The expression of an attribute, and the lines that it needs before."""
    if value is None:
        return "nullptr", ""
    if attribute.kind in _ARRAYS:
        c_type, kind = _ARRAYS[attribute.kind]
        members = ", ".join(map(_number, value))
        return (
            f"aclCreate{kind}Array({name}_, {len(value)})",
            f"    const {c_type} {name}_[{max(len(value), 1)}] = {{{members}}};\n",
        )
    if isinstance(value, Scalar):
        data = np.array(value.value, value.dtype.numpy).tobytes()
        line = f"    unsigned char {name}_[] = {{{', '.join(map(str, data))}}};\n"
        dtype = f"static_cast<aclDataType>({value.dtype.acl})"
        return f"aclCreateScalar({name}_, {dtype})", line
    if attribute.kind is Kind.STRING:
        return f'const_cast<char *>("{value}")', ""
    if attribute.kind is Kind.DTYPE:
        return f"static_cast<aclDataType>({value.acl})", ""
    return _number(value), ""


def _number(value: Any) -> str:
    if value == -(2**63):  # C has no such literal
        return "INT64_MIN"
    if isinstance(value, int) and value >= 2**63:
        return f"{value}u"
    return str(value).lower() if isinstance(value, bool) else repr(value)
