"""The suite catches: each fault of the table is reported in the blocks that are there for it."""

import pytest
from tests.more import parts
from tests.rows import each

from npucall_conformance.cases.blocks import BLOCKS
from npucall_conformance.statements import statements

from .fault_table import CHECKS, DRAWN, OPERATORS, PATHS, PLACES, ROUNDING, SAYS
from .faults import Fault, at
from .servers import failing_blocks, report_on

FAULTS = (*OPERATORS, *ROUNDING, *CHECKS, *PLACES, *SAYS, *DRAWN)
CHEAP = BLOCKS.keys() - {"crowd", "large", "paths"}
"""The others are run of a fault that they have to report."""
BY_ONE = {
    block: min((f for f in FAULTS if f.seen == {block}), key=lambda fault: not fault.quick)
    for block in BLOCKS
}
"""For each block a fault that no other block reports."""
VERSIONS = ("", "V2", "V4")
SAME = {
    **{
        (f"aclnnFlashAttention{name}V4", f"softmax_{way}_layout"): "of one head both are the same"
        for name, way in (("VarLenScore", "out"), ("UnpaddingScoreGrad", "in"))
    },
    ("aclnnNLLLoss", "ignore_index"): "a label that is no class is ignored as well",
    ("aclnnNLLLoss2d", "ignore_index"): "a label that is no class is ignored as well",
    ("aclnnConvolution", "cube_math_type"): "the reference uses full precision",
    ("aclnnConvolutionBackward", "cube_math_type"): "the reference uses full precision",
    ("aclnnConvTbcBackward", "cube_math_type"): "the reference uses full precision",
    ("aclnnLstmBackward", "dropout"): "it has no effect, and must be 0 on Ascend 950",
    ("aclnnLstmBackward", "train"): "it has no effect, and must be True on Ascend 950",
    ("aclnnAvgPool2d", "cube_math_type"): "the reference uses full precision",
    ("aclnnAvgPool2dBackward", "cube_math_type"): "the reference uses full precision",
    ("aclnnUpsampleBilinear2dBackward", "scales_h"): "the extents alone count",
    ("aclnnUpsampleBilinear2dBackward", "scales_w"): "the extents alone count",
    ("aclnnMatmul", "cube_math_type"): "1 allows less precision, of which the reference uses none",
    ("aclnnBatchMatMul", "cube_math_type"): "the reference uses full precision",
    ("aclnnBatchNormElemt", "eps"): "it has no effect",
    ("aclnnIndexPutImpl", "unsafe"): "it has no effect",
    ("aclnnGroupNormSwish", "data_format"): "it is not looked at",
    ("aclnnGroupNormSwishGrad", "data_format"): "it is not looked at",
    ("aclnnMm", "cube_math_type"): "the reference uses full precision",
    ("aclnnMoeInitRoutingV2", "expert_capacity"): "without drop_pad_mode it has no effect",
    ("aclnnMoeInitRoutingV2", "expert_num"): "without drop_pad_mode or counts it has no effect",
    ("aclnnMoeInitRoutingV2", "expert_tokens_before_capacity_flag"): "the same",
    ("aclnnMoeFinalizeRoutingV2Grad", "expert_num"): "without drop_pad_mode it has no effect",
    ("aclnnMoeFinalizeRoutingV2Grad", "expert_capacity"): "without drop_pad_mode it has no effect",
    **{
        (f"aclnnFlashAttention{name}", "inner_precise"): "the statistics say which rows saw nothing"
        for name in ("ScoreGrad", "ScoreGradV2", *(f"UnpaddingScoreGrad{v}" for v in VERSIONS))
    },
}
"""Defaults of which another value has the same results, with the reason."""
UNBOUNDED = 2**31 - 1
"""From here on one more is as much."""
SAMPLED = 6
"""Of so many defaults a quick run does not leave out each."""
AS_INPUT = "same_as_input"
A_DTYPE = "next(d for d in self.operator.dtypes_on(self.product) if d.name == 'DOUBLE')"
DEFAULTS = [
    (statement.title, name)
    for statement in statements()
    for name in statement.defaults
    if (statement.operator, name) not in SAME
]


TURNS_OF_FAULTS = [
    pytest.param(FAULTS[::3], marks=pytest.mark.more, id="a third"),
    pytest.param(FAULTS, marks=pytest.mark.long, id="all"),
]


def reporting(fault: Fault, blocks: set[str]) -> set[str]:
    """Those of the blocks that report it."""
    with pytest.MonkeyPatch.context() as patch:
        fault.apply(patch)
        more = {"soc": fault.soc, "profile": fault.profile, "quick": fault.quick}
        return failing_blocks(report_on(fault.operator, blocks, **more))


@each("fault", (*FAULTS, *PATHS))
def test_the_text_of_every_fault_is_there(fault: Fault) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fault.apply(patch)


@each("block", BLOCKS)
def test_each_block_reports_a_fault(block: str) -> None:
    assert reporting(BY_ONE[block], {block, "grid", "invalid"}) == {block}


@pytest.mark.more
@each("block", BLOCKS)
def test_without_a_block_its_fault_would_pass(block: str) -> None:
    assert reporting(BY_ONE[block], set(BLOCKS)) == {block}


@pytest.mark.parametrize("some", TURNS_OF_FAULTS)
def test_exactly_the_blocks_that_are_there_for_a_fault_report_it(some: tuple[Fault, ...]) -> None:
    for fault in some:
        others = CHEAP if fault.quick else {"grid", "invalid"}
        assert reporting(fault, fault.seen | others) == fault.seen, fault


@pytest.mark.more
@each(("operator", "soc"), {(f.operator, f.soc) for f in FAULTS if f.soc != "Ascend910B1"})
def test_an_operator_without_a_fault_passes_on_that_product(operator: str, soc: str) -> None:
    assert report_on(operator, CHEAP, soc=soc, quick=True).failures == []


def another(name: str, value: object) -> str:
    """The text of another value, which says something else."""
    if name == "inner_precise":
        return "2"  # 1 says what 0 says
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, str):
        return repr(
            {"mean": "sum", "none": "tanh", "BNSD": "BSND", "TND": "BSND", "": AS_INPUT}[value]
        )
    if isinstance(value, tuple):
        return "(1,)" if value == (0,) else "(0,)"
    if isinstance(value, int) and value >= UNBOUNDED:
        return "0"
    return f"{value} + 1" if isinstance(value, int | float) else A_DTYPE


def default(title: str, name: str) -> Fault:
    """An attribute that is left out has another value than the listed one."""
    (statement,) = (each for each in statements() if each.title == title)
    old = "self.operator.default(parameter)"
    new = f"{another(name, statement.defaults[name])} if name == {name!r} else {old}"
    quick = len(statement.defaults) < SAMPLED
    return at(".declare.draft", title.removeprefix("aclnn"), "defaults", old, new, quick=quick)


@each(("title", "name"), DEFAULTS[::24])
def test_another_default_is_reported(title: str, name: str) -> None:
    assert reporting(default(title, name), {"defaults"}) == {"defaults"}


@parts(more=slice(1, None, 4))
def test_every_other_default_is_reported(part: slice) -> None:
    found = {each: reporting(default(*each), {"defaults"}) for each in DEFAULTS[part]}
    assert [each for each, blocks in found.items() if blocks != {"defaults"}] == []
