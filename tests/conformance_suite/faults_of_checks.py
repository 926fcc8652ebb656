"""Faults in checks: their order, status and blame, and calls that pass them wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npucall.declare import rules
from npucall.dtypes import FLOATS
from npucall.errors import ArgumentError
from npucall.operators.kl_div_backward import TENSORS, kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.products import ASCEND_910

from .seeded import changed, exchanged, fault, moved_last, without

if TYPE_CHECKING:
    from npucall.declare.draft import Draft
    from npucall.declare.rules import Rule

KL, L1 = "aclnnKlDivBackward", "aclnnL1LossBackward"
DOCUMENTED = "aclnnKlDivTargetBackward.documented"
BUILTIN = "aclnnKlDivTargetBackward.builtin"
INNER_NULLPTR = 561103


def with_status(rule: Rule) -> Rule:
    """The same check, whose errors have the status of a failed step within the device."""

    def check(draft: Draft) -> None:
        try:
            rule.check(draft)
        except ArgumentError as error:
            error.aclnn_status = INNER_NULLPTR
            raise

    return replace(rule, check=check)


def blaming_self(rule: Rule) -> Rule:
    """The same check, whose errors blame self."""

    def check(draft: Draft) -> None:
        try:
            rule.check(draft)
        except ArgumentError as error:
            raise type(error)(
                str(error), parameter="self", aclnn_status=error.aclnn_status
            ) from error

    return replace(rule, check=check)


CHECKS = (
    fault("null pointers are looked for last", KL,
          moved_last(kl_div_backward, "grad_output, self, target and out must"),
          found_in="invalid", spared="grid rank"),
    fault("an output's null pointer is not looked for", L1,
          exchanged(l1_loss_backward, "grad_output, self, target and grad_input must",
                    lambda _: rules.present("grad_output", "self", "target")),
          found_in="invalid", spared="grid"),
    fault("null pointers are found in another order", KL,
          exchanged(kl_div_backward, "grad_output, self, target and out must",
                    lambda _: rules.present(*reversed(TENSORS))),
          found_in="invalid", spared="grid rank"),
    fault("reduction is checked after the dtypes", L1, moved_last(l1_loss_backward, "reduction is"),
          found_in="invalid", spared="reduction grid"),
    fault("shapes are checked before ranks", KL,
          moved_last(kl_div_backward, "grad_output, self, target and out have"),
          found_in="invalid", spared="grid"),
    fault("a wrong shape has the device's inner status", KL,
          exchanged(kl_div_backward, "shape of out", with_status),
          found_in="invalid", spared="grid rank"),
    fault("a wrong shape of grad_output is blamed on self", KL,
          exchanged(kl_div_backward, "grad_output broadcasts", blaming_self),
          found_in="invalid", spared="grid rank"),
    fault("DOUBLE is accepted", KL, without(kl_div_backward, "dtype of"),
          found_in="invalid documents", spared="grid"),
    fault("dtypes that differ are accepted", DOCUMENTED,
          without(kl_div_target_backward_documented, "dtype of grad_output, self and grad_target"),
          found_in="invalid", spared="grid"),
    fault("a private format is accepted", DOCUMENTED,
          without(kl_div_target_backward_documented,
                  "grad_output, self, target and grad_target are not"),
          found_in="invalid", spared="grid"),
    fault("the output's dtype need not be that of target", BUILTIN,
          without(kl_div_target_backward_builtin, "dtype of grad_target is"),
          found_in="invalid", spared="grid"),
    fault("BF16 is accepted where the product has none", KL,
          changed(kl_div_backward, legacy={**kl_div_backward.legacy, ASCEND_910: FLOATS}),
          found_in="invalid", spared="reduction", soc="Ascend910A"),
    fault("nine dimensions are accepted", L1,
          without(l1_loss_backward, "self, target, grad_output and grad_input have"),
          found_in="rank invalid", spared="grid"),
    fault("eight dimensions are refused", KL,
          exchanged(kl_div_backward, "grad_output, self, target and out have",
                    lambda _: rules.rank_at_most(7, *TENSORS)),
          found_in="rank", spared="grid"),
    fault("reduction 3 is accepted", L1,
          exchanged(l1_loss_backward, "reduction", lambda _: rules.one_of("reduction", 0, 1, 2, 3)),
          found_in="reduction", spared="grid"),
    fault("reduction 4 is refused", KL,
          exchanged(kl_div_backward, "warning", lambda _: rules.one_of("reduction", 0, 1, 2, 3)),
          found_in="reduction documents", spared="grid invalid"),
    fault("no tensors without elements are accepted", L1,
          exchanged(l1_loss_backward, "if ", lambda _: rules.requires(
              "elements", "self", holds=lambda draft: 0 not in draft.shape("self"),
              found=lambda draft: draft.shape("self"))),
          found_in="empty", spared="grid"),
)  # fmt: skip
