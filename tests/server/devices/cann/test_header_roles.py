"""Which tensors are outputs: the rule step by step, its exceptions, the documented operators.

Here an operator's parameters are words, in C order: ``x`` is a const tensor, ``~x`` one without
const, ``.`` an attribute. A tensor that is written has ``>`` before its name, one that is read and
written ``=``.
"""

from tests.simulator.prototypes import read_prototypes

from npucall_server.devices.cann.header_roles import TensorRole, roles_of

MARKS = {TensorRole.INPUT: "", TensorRole.OUTPUT: ">", TensorRole.IN_OUT: "="}
NORM = "x1 x2 bias =residual gamma . . . >normOut"
RULES = {
    "a tensor without const is an output if it is called so": [
        ("aclnnX", f"self ~>{name}")
        for name in ("out", "outGelu", "output", "outputScale", "y", "y1", "y2", "result",
                     "valuesOut", "y2OutOptional", "gradInput", "gradWeight", "gradXyz1",
                     "inputGrad")
    ],
    "else it is also read": [
        ("aclnnX", f"self ~={name}")
        for name in ("runningMean", "varRef", "grad", "state", "listRefOptional")
    ],
    "an attribute behind an output without const changes nothing": [
        ("aclnnMatmul", "self mat2 ~>out ."),
    ],
    "a const tensor beside one without is an input though it is called as an output": [
        *(("aclnnX", f"gradOutput {name} . ~>gradX")
          for name in ("output", "result", "y", "out", "gradInput")),
        ("aclnnLayerNormBackward", "gradOut input mean ~>gradInput"),
        ("aclnnLayerNormBackward", "grad_out input mean ~>gradInput"),
    ],
    "but an output if its name ends with out": [
        ("aclnnMlaProlog",
         "tokenX ~=kvCacheRef ~=krCacheRef scaleOptional . >queryOut >queryRopeOut"),
        ("aclnnMlaProlog", "tokenX ~=kvCacheRef scaleOptional . >queryOut >scaleOutOptional"),
        ("aclnnMlaProlog", "tokenX ~=kvCacheRef scaleOptional . >queryOut >scale_out"),
    ],
    "where all are const those behind the last attribute are the outputs of generated operators": [
        ("aclnnLogit", "input . >out"),
        ("aclnnSwiGluGrad", "yGrad x . >out"),
        ("aclnnAddLora", "y x weightB . . >out"),
        ("aclnnQuantMax", "x scale . . >y >amax"),
        ("aclnnGroupedDynamicMxQuant", "x groupIndex . . >y >mxscale"),
        ("aclnnFusedInferAttentionScore", "query key value . deqScale1 . . >out >softmaxLse"),
        ("aclnnRingAttentionUpdate", "prevAttnOut curAttnOut lenOptional . >attnOutOut >sumOut"),
        ("aclnnGroupNormSwishGrad", "dy mean rstd x gamma beta . . >dxOut >dgammaOut >dbetaOut"),
        ("aclnnFusedSgd", "=paramsRef grads =momentumOptionalRef =stateRefOptional . . >stepOut"),
    ],
    "without attributes, or where none is between tensors, names tell": [
        ("aclnnRelu", "self >out"),
        ("aclnnGeluBackward", "gradOutput self >gradInput"),
        ("aclnnDynamicQuant", "x smoothScalesOptional >yOut >scaleOut"),
        ("aclnnX", "gradOut gradOutput >result"),
        ("aclnnX", "x >y >y1 >meanOutOptional"),
        ("aclnnX", "grad_out layout >x_out"),
        ("aclnnX", "x =stateRef >output"),
        ("aclnnPowScalarTensor", ". exponent >out"),
        ("aclnnMatmulEmuSplitWeight", "x wHigh wLow >y . ."),
    ],
    "an operator in place reads and writes its first tensor": [
        ("aclnnInplaceCopy", "~=selfRef src"),
        ("aclnnInplaceAdd", "=selfRef other ."),
        ("aclnnInplaceHardswish", "=self"),
        ("aclnnInplaceSqrt", "~=self"),
        ("aclnnInplaceScatterUpdate", "~=data indices updates ."),
        ("aclnnForeachZeroInplace", "=x"),
        ("aclnnInplaceX", ". =x1 x2 . x3"),
        ("aclnnInplaceX", "=x1 x2 ~>out"),
        *((f"aclnnInplace{kind}MatmulAllReduceAddRmsNorm", NORM)
          for kind in ("", "Quant", "WeightQuant")),
    ],
    "operators that break the rule are known": [
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
}  # fmt: skip


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


def test_every_rule_finds_the_outputs() -> None:
    wrong = [
        (rule, operator, marked(operator, parameters))
        for rule, rows in RULES.items()
        for operator, parameters in rows
        if marked(operator, parameters) != parameters
    ]
    assert wrong == []


def test_a_list_of_tensors_is_a_tensor() -> None:
    for c_type in "aclTensorList*", "const aclTensorList*":
        roles = roles_of("aclnnX", {"x": "const aclTensorList*", "out": c_type})
        assert roles == {"x": TensorRole.INPUT, "out": TensorRole.OUTPUT}


def test_an_exception_says_nothing_of_a_tensor_that_is_not_there() -> None:
    assert list(roles_of("aclnnNLLLoss2dBackward", {"self": "const aclTensor*"})) == ["self"]


def test_outputs_are_what_the_documents_call_outputs() -> None:
    prototypes, wrong = read_prototypes(), []
    for prototype in prototypes:
        roles = roles_of(prototype.name, {p.name: p.c_type for p in prototype.parameters})
        found = [name for name, role in roles.items() if role is not TensorRole.INPUT]
        if found != [p.name for p in prototype.parameters if p.output]:
            wrong.append((prototype.name, found))
    assert len(prototypes) > 100
    assert wrong == []
