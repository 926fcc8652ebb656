"""Checks that are missing, too strict, in another order, or blame others; and products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npucall.declare import rules
from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, FLOATS, INT16, INT32, INT64, UINT8
from npucall.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

from .planted import before, changed, instead, kind, lacking, refusal, without

planted = kind("checks and products")


def dtypes_on(name: str, product: Any, *dtypes: Any) -> Any:
    """The operator takes these dtypes on a product, and lists them so."""
    return changed(
        name,
        products=lambda op: {**op.products, product: dtypes},
        legacy=lambda op: {p: d for p, d in op.legacy.items() if p is not product},
    )


def also(name: str, product: Any, *dtypes: Any) -> Any:
    return changed(
        name, products=lambda op: {**op.products, product: (*op.dtypes_on(product), *dtypes)}
    )


def but(name: str, product: Any, *dtypes: Any) -> Any:
    return changed(
        name,
        products=lambda op: {
            **op.products,
            product: tuple(d for d in op.dtypes_on(product) if d not in dtypes),
        },
    )


def quietly(name: str, product: Any, *dtypes: Any) -> Any:
    """The product takes further dtypes in checks, though it lists none of them."""

    def checks(op: Any) -> Any:
        def loosened(rule: Any) -> Any:
            if (
                not rule.description.startswith("dtype of ")
                or "product takes" not in rule.description
            ):
                return rule

            def check(draft: Any) -> None:
                try:
                    rule.check(draft)
                except DTypeError:
                    if not any(spec.dtype in dtypes for spec in draft._tensors.values()):
                        raise

            return replace(rule, check=check)

        return tuple(map(loosened, op.checks))

    return changed(name, checks=checks)


def blaming(wrong: Any, of: type = ArgumentError) -> Any:
    def change(error: Any) -> None:
        if isinstance(error, of):
            error.parameters = wrong(error.parameters)

    return refusal(change)


def status(old: int, new: int | None) -> Any:
    def change(error: Any) -> None:
        if error.aclnn_status == old:
            error.aclnn_status = new

    return refusal(change)


def plain(error: Any) -> Any:
    """Whatever is wrong with a shape is an argument that is wrong."""
    if isinstance(error, ShapeError):
        return ArgumentError(
            str(error), parameter=error.parameters, aclnn_status=error.aclnn_status
        )
    return None


def dims_wrap(patch: Any) -> None:
    """A dimension beyond the rank counts from the end once more."""
    from npucall.declare.draft import Draft

    right = Draft.attribute

    def attribute(self: Any, name: str) -> Any:
        value = right(self, name)
        if name == "dim" and isinstance(value, int) and "self" in self._tensors:
            rank = max(len(self.shape("self")), 1)
            return value % rank - rank
        return value

    patch.setattr(Draft, "attribute", attribute)


FAULTS = (
    planted(
        "a null output is not found",
        "Mul",
        instead("Mul", "self, other and out must not be null", rules.present("self", "other")),
    ),
    planted(
        "a null number is not found",
        "Elu",
        instead("Elu", "self, alpha, scale", rules.present("self", "alpha", "scale", "out")),
    ),
    planted(
        "a null weight is not found",
        "NLLLoss",
        instead(
            "NLLLoss",
            "self, target, weight",
            rules.present("self", "target", "out", "total_weight_out"),
        ),
    ),
    planted(
        "the rank of the second operand is not checked",
        "Sub",
        instead("Sub", "self and other have at most 8", rules.rank_at_most(8, "self")),
    ),
    planted(
        "the rank of target is not checked",
        "KlDivBackward",
        instead(
            "KlDivBackward",
            "grad_output, self, target and out have at most 8",
            rules.rank_at_most(8, "grad_output", "self", "out"),
        ),
    ),
    planted(
        "7 dimensions are the most",
        "Tanh",
        instead("Tanh", "self have at most 8", rules.rank_at_most(7, "self")),
    ),
    planted(
        "the output's dtype is not checked", "Gelu", without("Gelu", "dtype of out is that of self")
    ),
    planted(
        "the output's shape is not checked",
        "LogitGrad",
        without("LogitGrad", "shape of out is that of x"),
    ),
    planted(
        "target's dtype is not checked",
        "MseLossBackward",
        instead(
            "MseLossBackward",
            "dtype of grad_output and target",
            rules.same_dtype("grad_output", as_="self"),
        ),
    ),
    planted(
        "the weight's shape is not checked",
        "BinaryCrossEntropy",
        without("BinaryCrossEntropy", "shape of weight is that of self"),
    ),
    planted(
        "a gradient may enlarge",
        "BinaryCrossEntropyBackward",
        changed(
            "BinaryCrossEntropyBackward",
            checks=lambda op: tuple(
                r for r in op.checks if "grad_output broadcasts" not in r.description
            ),
        ),
    ),
    planted(
        "reduction 3 passes as a sum",
        "SmoothL1LossBackward",
        instead(
            "SmoothL1LossBackward", "reduction is one of", rules.one_of("reduction", 0, 1, 2, 3)
        ),
    ),
    planted(
        "a negative reduction passes",
        "SoftMarginLossBackward",
        instead(
            "SoftMarginLossBackward", "reduction is one of", rules.one_of("reduction", -1, 0, 1, 2)
        ),
    ),
    planted("a negative beta passes", "SmoothL1Loss", without("SmoothL1Loss", "beta is 0 or more")),
    planted(
        "a beta of NaN passes",
        "SmoothL1LossBackward",
        instead(
            "SmoothL1LossBackward",
            "beta is 0 or more",
            rules.requires(
                "0 or more",
                "beta",
                holds=lambda d: not d.attribute("beta") < 0,
                found=lambda d: d.attribute("beta"),
                error=AttributeValueError,
            ),
        ),
    ),
    planted("a dimension beyond the rank wraps", "Softmax LogSoftmaxBackward Glu", dims_wrap),
    planted(
        "an odd extent is halved",
        "Glu",
        changed(
            "Glu",
            checks=lambda op: tuple(r for r in op.checks if "even extent" not in r.description),
        ),
    ),
    planted(
        "ends of a clamp in another order pass",
        "Hardtanh",
        without("Hardtanh", "clip_value_min: no more than"),
    ),
    planted(
        "a negative slope of a result passes",
        "LeakyReluBackward",
        without("LeakyReluBackward", "negative_slope: 0 or more"),
    ),
    planted(
        "a complex number is taken as real",
        "Softplus",
        without("Softplus", "beta and threshold can be cast"),
    ),
    planted(
        "a private format passes",
        "Div",
        without("Div", "self, other and out are not in a private format"),
    ),
    planted("two formats pass", "Hardsigmoid", without("Hardsigmoid", "format of self")),
    planted(
        "labels of INT16 pass",
        "NLLLoss2d",
        instead(
            "NLLLoss2d", "dtype of target is", rules.dtype_in("target", INT64, INT32, INT16, UINT8)
        ),
    ),
    planted(
        "labels of INT32 are refused",
        "NLLLossBackward",
        instead("NLLLossBackward", "dtype of target is", rules.dtype_in("target", INT64)),
    ),
    planted(
        "the inner extents are not checked first",
        "Matmul",
        before("Matmul", "self has 1", "dtype of self, mat2 and out"),
    ),
    planted(
        "cube_math_type 4 is refused",
        "Matmul",
        instead("Matmul", "cube_math_type is one of", rules.one_of("cube_math_type", 0, 1, 2, 3)),
    ),
    planted("dimensions are not checked", "ReduceSum", without("ReduceSum", "dims are dimensions")),
    planted(
        "blank may be any class",
        "CtcLoss",
        changed(
            "CtcLoss",
            checks=lambda op: tuple(r for r in op.checks if not r.description.startswith("blank")),
        ),
    ),
    planted(
        "lengths may be negative",
        "CtcLossBackward",
        changed(
            "CtcLossBackward",
            checks=lambda op: tuple(
                r for r in op.checks if "lengths of 0 or more" not in r.description
            ),
        ),
    ),
    planted(
        "shapes are checked before dtypes",
        "SoftplusBackward",
        before("SoftplusBackward", "shape of self", "dtype of grad_output"),
    ),
    planted(
        "emptiness is found before wrong dtypes",
        "Mul",
        before("Mul", "if self or other is empty", "dtype of self, other and out"),
    ),
    planted(
        "emptiness is found before null tensors",
        "Threshold",
        before("Threshold", "if self is empty", "self, out, threshold and value must"),
    ),
    planted(
        "a cast to BOOL is allowed",
        "HardsigmoidBackward",
        changed(
            "HardsigmoidBackward",
            checks=lambda op: tuple(r for r in op.checks if "can be cast" not in r.description),
        ),
    ),
    planted("errors blame the first tensor", "Div", blaming(lambda p: ("self",) if p else p)),
    planted(
        "errors blame in another order",
        "KlDivTargetBackward.builtin",
        blaming(lambda p: tuple(reversed(p))),
    ),
    planted("errors of shapes blame nobody", "Add", blaming(lambda p: (), ShapeError)),
    planted("null pointers are invalid parameters", "Log", status(161001, 161002)),
    planted(
        "tiling errors are invalid parameters", "Logit CrossEntropyLoss", status(561002, 161002)
    ),
    planted("errors have no status", "Exp", status(161002, None)),
    planted("wrong shapes are wrong arguments", "Softmax", refusal(plain)),
    planted(
        "BF16 passes where the product has none",
        "Silu",
        quietly("Silu", ASCEND_910, BF16),
        soc="Ascend910A",
    ),
    planted("DOUBLE passes unlisted", "Hardswish", quietly("Hardswish", A2, DOUBLE)),
    planted(
        "a product has an operator that it lacks",
        "CrossEntropyLoss",
        dtypes_on("CrossEntropyLoss", ASCEND_910, FLOAT, FLOAT16),
        soc="Ascend910A",
    ),
    planted(
        "a product lacks an operator",
        "SiluBackward",
        changed(
            "SiluBackward",
            products=lambda op: {p: d for p, d in op.products.items() if p is not ASCEND_950},
        ),
        soc="Ascend950PR_9599",
    ),
    planted("BF16 of a divergence is forgotten", "KlDiv", but("KlDiv", A2, BF16)),
    planted(
        "FLOAT16 of a loss is forgotten on inference cards",
        "L1Loss",
        but("L1Loss", ASCEND_310P, FLOAT16),
        soc="Ascend310P3",
    ),
    planted(
        "INT64 passes as a threshold's on A2",
        "ThresholdBackward",
        also("ThresholdBackward", A2, INT64),
    ),
    planted("glu is forgotten", "Glu", lacking("Glu")),
    planted(
        "mixed dtypes of silu are refused on Ascend 950",
        "SiluBackward",
        changed(
            "SiluBackward",
            checks=lambda op: tuple(
                rules.same_dtype("self", as_="grad_output") if "otherwise" in r.description else r
                for r in op.checks
            ),
        ),
        soc="Ascend950PR_9599",
    ),
    planted(
        "labels of INT32 are refused on Ascend 950",
        "CrossEntropyLossGrad",
        changed(
            "CrossEntropyLossGrad",
            checks=lambda op: tuple(
                rules.dtype_in("target", INT64) if "dtype of target" in r.description else r
                for r in op.checks
            ),
        ),
        soc="Ascend950PR_9599",
    ),
    planted(
        "shapes of Ascend 950 are those of older ones",
        "SiluBackward",
        changed(
            "SiluBackward",
            checks=lambda op: (
                *op.checks[:2],
                rules.same_shape("self", "grad_output"),
                *op.checks[2:],
            ),
        ),
        soc="Ascend950PR_9599",
    ),
    planted(
        "FLOAT is multiplied on training cards",
        "Matmul",
        changed(
            "Matmul",
            checks=lambda op: tuple(
                r for r in op.checks if "for FLOAT on Ascend910" not in r.description
            ),
        ),
        soc="Ascend910A",
    ),
    planted(
        "A3 has the dtypes of older cards",
        "Softmax",
        dtypes_on("Softmax", A3, FLOAT, FLOAT16, DOUBLE),
        soc="Ascend910_9391",
    ),
    planted(
        "inference cards take BF16 of a cast",
        "Cast",
        also("Cast", ASCEND_310P, BF16),
        soc="Ascend310P3",
    ),
    planted(
        "an empty gradient is found late on A2",
        "SoftmaxBackward",
        changed(
            "SoftmaxBackward",
            checks=lambda op: tuple(
                r for r in op.checks if not ("except" in r.description or "not on" in r.description)
            ),
        ),
    ),
    planted("INT32 passes as a loss", "MseLoss", quietly("MseLoss", A2, INT32)),
    planted(
        "weights that are too few pass",
        "CrossEntropyLoss",
        changed(
            "CrossEntropyLoss",
            checks=lambda op: tuple(r for r in op.checks if "shape of weight" not in r.description),
        ),
    ),
    planted("integers of tanh are forgotten", "Tanh", dtypes_on("Tanh", A2, *FLOATS)),
)
