"""Which tensors are outputs: the rule step by step, its exceptions, the documented operators.

Here an operator's parameters are words, in C order: ``x`` is a const tensor, ``~x`` one without
const, ``.`` an attribute. A tensor that is written has ``>`` before its name, one that is read and
written ``=``.
"""

from __future__ import annotations

import pytest
from tests.simulator.prototypes import Prototype, read_prototypes

from npucall_server.devices.cann.header_roles import Role, roles_of

PROTOTYPES = read_prototypes()
MARKS = {Role.INPUT: "", Role.OUTPUT: ">", Role.IN_OUT: "="}


def marked(operator: str, parameters: str) -> str:
    """The same words, with the marks that the rule gives."""
    words = [word.replace(">", "").replace("=", "") for word in parameters.split()]
    names = [word.strip("~") if word != "." else f"attribute{i}" for i, word in enumerate(words)]
    kinds = {"~": "aclTensor*", ".": "int64_t"}
    types = [kinds.get(word[0], "const aclTensor*") for word in words]
    roles = roles_of(operator, dict(zip(names, types, strict=True)))
    return " ".join(
        word if word == "." else f"{'~' * word.startswith('~')}{MARKS[roles[name]]}{name}"
        for word, name in zip(words, names, strict=True)
    )


# --- Some tensor has no const ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["out", "outGelu", "output", "outputScale", "y", "y1", "y2", "result", "valuesOut",
     "y2OutOptional", "gradInput", "gradWeight", "gradXyz1", "inputGrad"],
)  # fmt: skip
def test_a_tensor_without_const_is_an_output(name: str) -> None:
    assert marked("aclnnX", f"self ~>{name}") == f"self ~>{name}"


@pytest.mark.parametrize("name", ["runningMean", "varRef", "grad", "state", "listRefOptional"])
def test_a_tensor_without_const_is_also_read_unless_it_is_called_as_an_output(name: str) -> None:
    assert marked("aclnnX", f"self ~={name}") == f"self ~={name}"


def test_an_attribute_behind_an_output_without_const_changes_nothing() -> None:
    assert marked("aclnnMatmul", "self mat2 ~>out .") == "self mat2 ~>out ."


@pytest.mark.parametrize("name", ["output", "result", "y", "out", "gradInput"])
def test_a_const_tensor_beside_one_without_is_an_input_though_it_is_called_as_an_output(
    name: str,
) -> None:
    assert marked("aclnnX", f"gradOutput {name} . ~>gradX") == f"gradOutput {name} . ~>gradX"


def test_a_const_tensor_beside_one_without_is_an_output_if_its_name_ends_with_out() -> None:
    parameters = "tokenX ~=kvCacheRef ~=krCacheRef scaleOptional . >queryOut >queryRopeOut"
    assert marked("aclnnMlaProlog", parameters) == parameters


@pytest.mark.parametrize("name", ["scaleOutOptional", "scale_out"])
def test_a_const_output_beside_one_without_may_be_optional_or_spelled_with_underscores(
    name: str,
) -> None:
    parameters = f"tokenX ~=kvCacheRef scaleOptional . >queryOut >{name}"
    assert marked("aclnnMlaProlog", parameters) == parameters


@pytest.mark.parametrize("name", ["gradOut", "grad_out"])
def test_the_gradient_of_the_output_is_an_input(name: str) -> None:
    parameters = f"{name} input mean ~>gradInput"
    assert marked("aclnnLayerNormBackward", parameters) == parameters


@pytest.mark.parametrize("c_type", ["aclTensorList*", "const aclTensorList*"])
def test_a_list_of_tensors_is_a_tensor(c_type: str) -> None:
    assert roles_of("aclnnX", {"x": "const aclTensorList*", "out": c_type}) == {
        "x": Role.INPUT,
        "out": Role.OUTPUT,
    }


# --- Every tensor is const ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        ("aclnnLogit", "input . >out"),
        ("aclnnSwiGluGrad", "yGrad x . >out"),
        ("aclnnAddLora", "y x weightB . . >out"),
        ("aclnnQuantMax", "x scale . . >y >amax"),
        ("aclnnGroupedDynamicMxQuant", "x groupIndex . . >y >mxscale"),
        ("aclnnFusedInferAttentionScore", "query key value . deqScale1 . . >out >softmaxLse"),
        ("aclnnRingAttentionUpdate", "prevAttnOut curAttnOut lenOptional . >attnOutOut >sumOut"),
        ("aclnnGroupNormSwishGrad", "dy mean rstd x gamma beta . . >dxOut >dgammaOut >dbetaOut"),
    ],
)
def test_tensors_behind_the_last_attribute_are_the_outputs_of_generated_operators(
    operator: str, parameters: str
) -> None:
    assert marked(operator, parameters) == parameters


def test_generated_operators_also_write_what_is_called_ref() -> None:
    parameters = "=paramsRef grads =momentumOptionalRef =stateRefOptional . . >stepOut"
    assert marked("aclnnFusedSgd", parameters) == parameters


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        ("aclnnRelu", "self >out"),
        ("aclnnGeluBackward", "gradOutput self >gradInput"),
        ("aclnnDynamicQuant", "x smoothScalesOptional >yOut >scaleOut"),
        ("aclnnX", "gradOut gradOutput >result"),
        ("aclnnX", "x >y >y1 >meanOutOptional"),
        ("aclnnX", "grad_out layout >x_out"),
        ("aclnnX", "x =stateRef >output"),
    ],
)
def test_without_attributes_names_tell_the_outputs(operator: str, parameters: str) -> None:
    assert marked(operator, parameters) == parameters


def test_names_tell_the_outputs_where_all_attributes_come_first() -> None:
    assert marked("aclnnPowScalarTensor", ". exponent >out") == ". exponent >out"


def test_names_tell_the_outputs_where_no_tensor_is_behind_the_attributes() -> None:
    parameters = "x wHigh wLow >y . ."
    assert marked("aclnnMatmulEmuSplitWeight", parameters) == parameters


# --- In place -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        ("aclnnInplaceCopy", "~=selfRef src"),
        ("aclnnInplaceAdd", "=selfRef other ."),
        ("aclnnInplaceHardswish", "=self"),
        ("aclnnInplaceSqrt", "~=self"),
        ("aclnnInplaceScatterUpdate", "~=data indices updates ."),
        ("aclnnForeachZeroInplace", "=x"),
        ("aclnnInplaceX", ". =x1 x2 . x3"),
        ("aclnnInplaceX", "=x1 x2 ~>out"),
    ],
)
def test_an_operator_in_place_reads_and_writes_its_first_tensor(
    operator: str, parameters: str
) -> None:
    assert marked(operator, parameters) == parameters


@pytest.mark.parametrize("kind", ["", "Quant", "WeightQuant"])
def test_all_reduce_with_norm_in_place_reads_and_writes_the_residual(kind: str) -> None:
    parameters = "x1 x2 bias =residual gamma . . . >normOut"
    assert marked(f"aclnnInplace{kind}MatmulAllReduceAddRmsNorm", parameters) == parameters


# --- Exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        ("aclnnAdvanceStep",
         "=inputTokens sampledTokenIds =inputPositions =seqLens =slotMapping blockTables . . ."),
        ("aclnnAdvanceStepV2",
         "=inputTokens sampledTokenIds =inputPositions =seqLens =slotMapping blockTables spec . ."),
        ("aclnnModulateBackward",
         "grad_output input scale shift >grad_input >grad_scale >grad_shift"),
        ("aclnnMultilabelMarginLoss", "self target . ~>out ~>isTarget"),
        ("aclnnNLLLoss2dBackward", "gradOutput self target weight . . ~totalWeight ~>out"),
        ("aclnnInplaceAtan2", "~=selfRef ~other"),
        ("aclnnBatchNormElemt", "input weight bias ~mean ~invstd . ~>output"),
        ("aclnnBatchNormElemtBackward", "gradOut input sumDyXmu ~counter ~>gradInput"),
        ("aclnnIndexCopy", "~selfRef . index source ~>outRef"),
        ("aclnnQuantizedBatchNorm", "input mean var . . ~weight ~bias . ~>output"),
        ("aclnnSoftmaxCrossEntropyWithLogits", "features ~labels ~=loss ~=backprop"),
        ("aclnnDeformableConv2dBackward", "input gradOutput offsetOut . ~>gradInput ~>gradOffset"),
        ("aclnnForeachNonFiniteCheckAndUnscale", "=scaledGrads =foundInf invScale"),
        ("aclnnFusedCrossEntropyLossWithMaxSum",
         "logitsMax . inputOptional >vocabParallelLogitsOptional ~>lossOut ~>softMaxOutOptional"),
        ("aclnnGroupedMatmulFinalizeRouting", "x ~w scaleOptional . ~>y"),
        ("aclnnGroupedMatmulFinalizeRoutingV2", "x1 ~x2 scaleOptional . ~>out"),
        ("aclnnGroupedMatmulFinalizeRoutingV3", "x1 ~x2 scaleOptional . ~>out"),
        ("aclnnGroupedMatmulFinalizeRoutingWeightNzV2", "x1 ~x2 scale . ~>out"),
        ("aclnnSiluMul", "x y >out"),
        ("aclnnXlog1py", "x y >z"),
        ("aclnnRReluWithNoise", "self =noise . . . ~>out"),
        ("aclnnInplaceRReluWithNoise", "=self =noise . . ."),
    ],
)  # fmt: skip
def test_operators_that_break_the_rule_are_known(operator: str, parameters: str) -> None:
    assert marked(operator, parameters) == parameters


def test_an_exception_says_nothing_of_a_tensor_that_is_not_there() -> None:
    assert list(roles_of("aclnnNLLLoss2dBackward", {"self": "const aclTensor*"})) == ["self"]


# --- The operators of the documents ---------------------------------------------------------------


@pytest.mark.parametrize("prototype", PROTOTYPES, ids=lambda p: f"{p.name}-{p.library}")
def test_outputs_are_what_the_documents_call_outputs(prototype: Prototype) -> None:
    types = {parameter.name: parameter.c_type for parameter in prototype.parameters}
    roles = roles_of(prototype.name, types)
    assert [name for name, role in roles.items() if role is not Role.INPUT] == [
        parameter.name for parameter in prototype.parameters if parameter.output
    ]
