"""Checks that the gradients of the binary cross entropy share."""

from npucall.declare import rules

INPUTS = ("grad_output", "self", "target", "weight", "pos_weight")


def with_logits(out: str) -> tuple[rules.Rule, ...]:
    """The checks of the two with logits, in order; ``out`` is the name of the output."""
    return (
        rules.present("grad_output", "self", "target", out),
        *output_rank(out),
        rules.supported(*INPUTS, out),
        rules.same_dtype(out, as_="target"),
        rules.same_format("self", "target"),
        rules.same_format("self", out),
        *if_self_has_elements(
            rules.same_shape("self", "target"),
            rules.same_shape("self", out),
            fits_self("grad_output"),
            fits_self("weight"),
            fits_self("pos_weight"),
        ),
        rules.one_of("reduction", 0, 1, 2),
        rules.succeed_if_empty("self"),
        rules.promoted(*INPUTS, into="promotion"),
    )


def output_rank(out: str) -> tuple[rules.Rule, ...]:
    """The output has at most 8 dimensions; one that is not given will have those of ``self``."""
    derived = rules.rank_at_most(8, "self")
    return rules.rank_at_most(8, out), rules.when(rules.not_given(out), derived, f"{out} not given")


def if_self_has_elements(*checks: rules.Rule) -> tuple[rules.Rule, ...]:
    """The checks, for a ``self`` that is not empty."""
    condition = rules.not_empty("self")
    return tuple(rules.when(condition, check, "self not empty") for check in checks)


def fits_self(name: str) -> rules.Rule:
    """The input broadcasts to ``self``, if it is given."""
    return rules.expandable(name, to="self", meaning="the shape of self")
