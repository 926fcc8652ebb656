"""Faults in formulas, and in what they compute and round in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npucall.declare import rules
from npucall.declare.parameters import Attribute, Input
from npucall.dtypes import FLOAT, FLOAT16
from npucall.operators.elu import elu
from npucall.operators.gelu_v2 import gelu_v2
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.log_softmax import log_softmax
from npucall.operators.sigmoid import sigmoid
from npucall.operators.softmax import softmax
from npucall.operators.threshold import threshold

from . import wrong_formulas as wrong
from .seeded import AnyOperator, changed, fault

KL, L1 = "aclnnKlDivBackward", "aclnnL1LossBackward"
DOCUMENTED = "aclnnKlDivTargetBackward.documented"
BUILTIN = "aclnnKlDivTargetBackward.builtin"


def as_sent(operator: AnyOperator, *names: str) -> tuple[Any, ...]:
    """The parameters, of which these come to the formula in their own dtypes."""
    return tuple(
        replace(p, as_is=True) if isinstance(p, Input) and p.name in names else p
        for p in operator.parameters
    )


def in_float(operator: AnyOperator) -> tuple[Any, ...]:
    """The parameters, of which aclScalars are converted to FLOAT."""
    return tuple(
        replace(p, dtype="") if isinstance(p, Attribute) else p for p in operator.parameters
    )


def kernel_of(operator: AnyOperator, **over: Any) -> dict[str, Any]:
    """Fields of an operator whose formula gets the kernel's own dtype."""
    return {"over": replace(operator.over, widen=False), **over}


FORMULAS = (
    fault("the mean divides by the count of self", KL,
          changed(kl_div_backward, formula=wrong.kl_mean_of_self),
          found_in="broadcast", spared="grid layout edge"),
    fault("batchmean divides by the first extent of self", KL,
          changed(kl_div_backward, formula=wrong.kl_batchmean_of_self),
          found_in="broadcast documents", spared="grid layout edge"),
    fault("the reduction sum divides too", KL,
          changed(kl_div_backward, formula=wrong.kl_sum_of_all),
          found_in="grid broadcast layout size", spared="reduction"),
    fault("the gradient has the wrong sign", KL,
          changed(kl_div_backward, formula=wrong.kl_without_sign),
          found_in="grid broadcast mixed layout edge reduction size"),
    fault("exp saturates instead of overflowing", KL,
          changed(kl_div_backward, formula=wrong.kl_of_saturating_exp),
          found_in="edge", spared="grid broadcast size"),
    fault("equality has the sign of greater", L1,
          changed(l1_loss_backward, formula=wrong.l1_positive_at_equality),
          found_in="grid edge"),
    fault("NaN has the sign of less", L1, changed(l1_loss_backward, formula=wrong.l1_sign_of_nan),
          found_in="edge documents", spared="grid broadcast"),
    fault("equal infinities are NaN", L1,
          changed(l1_loss_backward, formula=wrong.l1_sign_of_difference),
          found_in="edge", spared="grid broadcast"),
    fault("self and target are swapped", L1, changed(l1_loss_backward, formula=wrong.l1_swapped),
          found_in="grid broadcast mixed layout edge size"),
    fault("integers are compared before they are converted", L1,
          changed(l1_loss_backward, formula=wrong.l1_compared_as_sent,
                  parameters=as_sent(l1_loss_backward, "grad_output", "self", "target")),
          found_in="mixed", spared="grid broadcast edge"),
    fault("grad_output and self are swapped", BUILTIN,
          changed(kl_div_target_backward_builtin, formula=wrong.target_swapped),
          found_in="grid mixed layout edge"),
    fault("the gradient at target 0 is 0 where it is NaN", BUILTIN,
          changed(kl_div_target_backward_builtin, formula=wrong.target_of_zero_is_zero),
          found_in="edge documents", spared="grid"),
    fault("the gradient at target 0 is infinite where it is 0", DOCUMENTED,
          changed(kl_div_target_backward_documented, formula=wrong.target_without_mask),
          found_in="edge documents", spared="grid"),
    fault("an upstream NaN shows at target 0", DOCUMENTED,
          changed(kl_div_target_backward_documented, formula=wrong.target_masked_first),
          found_in="edge", spared="grid documents"),
    fault("FLOAT16 rounds every step", KL,
          changed(kl_div_backward, **kernel_of(kl_div_backward)),
          found_in="grid edge rank", spared="invalid"),
    fault("FLOAT is rounded to FLOAT16 on its way", L1,
          changed(l1_loss_backward, kernel_dtype=rules.always(FLOAT16)),
          found_in="grid broadcast mixed size"),
    fault("BF16 rounds twice", KL,
          changed(kl_div_backward, **kernel_of(
              kl_div_backward, kernel_dtype=rules.short_if_all("grad_output", "self", "target"))),
          found_in="grid size", spared="invalid"),
    fault("BF16 is rounded before the sum", BUILTIN,
          changed(kl_div_target_backward_builtin,
                  kernel_dtype=rules.short_if_all("grad_output", "self", "target")),
          found_in="broadcast", spared="invalid"),
    fault("BF16 is cut off twice", KL, changed(kl_div_backward, formula=wrong.kl_that_chops),
          found_in="grid size", spared="invalid"),
    fault("another variant answers", DOCUMENTED,
          changed(kl_div_target_backward_documented,
                  formula=kl_div_target_backward_community.formula),
          found_in="grid documents", spared="reduction"),
    fault("FLOAT16 is not rounded where the output is FLOAT", KL,
          changed(kl_div_backward, kernel_dtype=rules.always(FLOAT)),
          found_in="grid mixed", spared="invalid"),
    fault("the maximum of a row is not subtracted", "aclnnSoftmax",
          changed(softmax, formula=wrong.softmax_of_large_powers),
          found_in="edge", spared="grid layout"),
    fault("the result is rounded instead of the input", "aclnnLogSoftmax",
          changed(log_softmax, kernel_dtype=rules.dtype_of("self")),
          found_in="mixed documents", spared="grid edge"),
    fault("a value of approximate that nobody knows acts as 1", "aclnnGeluV2",
          changed(gelu_v2, formula=wrong.gelu_of_any_number),
          found_in="reduction documents", spared="grid edge"),
    fault("integers are computed in FLOAT whatever comes out", "aclnnSigmoid",
          changed(sigmoid, kernel_dtype=rules.dtype_of("result")),
          found_in="mixed", spared="grid edge"),
    fault("numbers count as FLOAT instead of as what self is", "aclnnThreshold",
          changed(threshold, parameters=in_float(threshold)),
          found_in="mixed edge", spared="rank"),
    fault("a factor that is infinite is used as any other", "aclnnElu",
          changed(elu, formula=wrong.elu_without_exception),
          found_in="edge documents", spared="grid reduction"),
    fault("BF16 is cut off instead of rounded", L1,
          changed(l1_loss_backward, formula=wrong.l1_chopped),
          found_in="grid size", spared="invalid"),
)  # fmt: skip
