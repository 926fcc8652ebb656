"""Lists of tensors: what operators of them have in common."""

from npucall.declare import rules

NOT_EMPTY = rules.requires(
    "at least one tensor",
    "tensors",
    holds=lambda draft: bool(draft.lists["tensors"]),
    found=lambda _: "an empty list",
)
