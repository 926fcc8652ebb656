"""Tokens from the rows of their experts, and the gradients."""

from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import INT32, AnyArray, Array
from npucall.operators import _routing as shared
from npucall.operators._norms import no_zero
from npucall.operators._routing import INDEX, ON, late

PROBS = Input(
    "probs",
    "a factor for each row, (T, K); none: K is 1",
    as_is=True,
    optional=True,
    c_name="probsOptional",
)
RESTORE = Attribute("restore_shape", Kind.INT_ARRAY, "ignored", c_name="restoreShapeOptional")


def experts_of(draft: Draft) -> int:
    """How many experts a token has."""
    return 1 if draft.absent("probs") else draft.shape("probs")[1]


def probs_fit(draft: Draft) -> bool:
    """Whether there is a factor for each place."""
    return draft.absent("probs") or prod(draft.shape("probs")) == draft.shape("sorted_indices")[0]


UNPERMUTED = (
    shared.UNPADDED,
    *shared.matrices("permuted_tokens"),
    *late(
        rules.rank_is("sorted_indices", 1),
        *no_zero("sorted_indices"),
        rules.rank_is("probs", 2),
        *no_zero("probs"),
    ),
    shared.within(
        "a factor for each place, for at most 512 experts",
        "probs",
        lambda draft: probs_fit(draft) and experts_of(draft) <= shared.MOST,
        "sorted_indices",
    ),
    shared.within(
        "a place for each row",
        "sorted_indices",
        lambda draft: draft.shape("sorted_indices")[0] == draft.shape("permuted_tokens")[0],
        "permuted_tokens",
    ),
    rules.shape_of("permuted_tokens", into="rows", make=lambda d: d.shape("permuted_tokens")),
    rules.shape_of("sorted_indices", into="places", make=lambda d: d.shape("sorted_indices")),
    rules.shape_of(
        "sorted_indices",
        into="tokens",
        make=lambda draft: (
            draft.shape("sorted_indices")[0] // experts_of(draft),
            draft.shape("permuted_tokens")[1],
        ),
    ),
)


@operator(
    "aclnnMoeTokenUnpermute",
    Input("permuted_tokens", "the rows, (T * K, H)"),
    INDEX,
    PROBS,
    shared.PADDED,
    RESTORE,
    Output("out", "a sum of its rows for each token, (T, H)", "tokens", "permuted_tokens"),
    checks=(
        rules.present("permuted_tokens", "sorted_indices", "out"),
        rules.supported("permuted_tokens"),
        rules.dtype_in("sorted_indices", INT32),
        rules.supported("probs"),
        rules.same_dtype("out", as_="permuted_tokens"),
        *UNPERMUTED,
        *late(rules.same_shape("out", "tokens", "a row for each token")),
    ),
    kernel_dtype=rules.dtype_of("permuted_tokens"),
    over=at_once(holds=lambda facts, _: 16 * facts.count("places")),
    values=shared.checked(sorted_indices="places"),
    sample=Sample({"sorted_indices": (2,), "probs": (1, 2)}, {"sorted_indices": INT32}),
    source="ops-transformer moe/moe_token_unpermute: page aclnnMoeTokenUnpermute, without Atlas "
    "inference, whose rows have lengths of their own; statuses of shapes decided",
    **ON,
)
def moe_token_unpermute(
    facts: Facts,
    permuted_tokens: Array,
    sorted_indices: Array,
    probs: Array | None = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> AnyArray:
    """Tokens from the rows that experts made of them.

    ::

        out[t] = sum over k of permuted_tokens[sorted_indices[t * K + k]] * probs[t, k]

    Without ``probs`` K is 1, and so is each factor, whose dtype is its own. Sums are taken in
    float32, and rounded once. A place that is none is refused (161002) when the call runs.

    As ``npu_moe_token_unpermute`` of torch_npu.
    """
    del padded_mode, restore_shape
    places = np.asarray(facts.read(sorted_indices, ...))
    shared.check_places(facts, "sorted_indices", places)
    experts = len(places) // facts.shapes["tokens"][0]
    return shared.gathered(facts, permuted_tokens, places, experts, shared.flat(facts, probs))


@operator(
    "aclnnMoeTokenUnpermuteGrad",
    Input("permuted_tokens", "the rows, (T * K, H)"),
    Input("unpermuted_tokens_grad", "gradient of the tokens, (T, H)"),
    INDEX,
    PROBS,
    shared.PADDED,
    RESTORE,
    Output("permuted_tokens_grad_out", "gradient of the rows", "rows", "permuted_tokens"),
    Output(
        "probs_grad_out",
        "gradient of probs",
        "probs",
        "probs",
        as_is=True,
        asked=lambda draft: not draft.absent("probs"),
    ),
    checks=(
        rules.present(
            "permuted_tokens",
            "unpermuted_tokens_grad",
            "sorted_indices",
            "permuted_tokens_grad_out",
        ),
        rules.supported("permuted_tokens"),
        rules.same_dtype("unpermuted_tokens_grad", as_="permuted_tokens"),
        rules.dtype_in("sorted_indices", INT32),
        rules.supported("probs"),
        rules.same_dtype("permuted_tokens_grad_out", as_="permuted_tokens"),
        rules.when(
            lambda draft: not draft.absent("probs"),
            rules.same_dtype("probs_grad_out", as_="probs"),
            "with probs",
        ),
        *UNPERMUTED,
        *late(
            rules.same_shape("unpermuted_tokens_grad", "tokens", "a row for each token"),
            rules.same_shape("permuted_tokens_grad_out", "permuted_tokens"),
            rules.when(
                lambda draft: not draft.absent("probs"),
                rules.same_shape("probs_grad_out", "probs"),
                "with probs",
            ),
        ),
    ),
    kernel_dtype=rules.dtype_of("permuted_tokens"),
    over=at_once(holds=lambda facts, _: 48 * facts.count("places")),
    values=shared.checked(sorted_indices="places"),
    sample=Sample(
        {"sorted_indices": (2,), "probs": (2, 1), "unpermuted_tokens_grad": (2, 3)},
        {"sorted_indices": INT32},
    ),
    source="ops-transformer moe/moe_token_unpermute_grad: page aclnnMoeTokenUnpermuteGrad, its "
    "tiling",
    **ON,
)
def moe_token_unpermute_grad(
    facts: Facts,
    permuted_tokens: Array,
    unpermuted_tokens_grad: Array,
    sorted_indices: Array,
    probs: Array | None = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> tuple[AnyArray, AnyArray | None]:
    """Gradients of ``moe_token_unpermute`` with respect to its rows and their factors.

    ::

        permuted_tokens_grad_out[sorted_indices[i]] = unpermuted_tokens_grad[i // K] * probs[i]
        probs_grad_out[i] = sum(permuted_tokens[sorted_indices[i]] * unpermuted_tokens_grad[i // K])

    Without ``probs`` K is 1, and so is each factor. All is computed in float32, and rounded once. A
    place that is none is refused (161002) when the call runs; of one that is named twice the last
    row counts, where a device may write any.

    As ``index_copy`` and ``index_select`` in torch.
    """
    del padded_mode, restore_shape
    places = np.asarray(facts.read(sorted_indices, ...))
    shared.check_places(facts, "sorted_indices", places)
    factors, name = shared.flat(facts, probs), "permuted_tokens_grad_out"
    of_rows = shared.sent(facts, name, unpermuted_tokens_grad, places, factors)
    if probs is None or "probs_grad_out" not in facts.asked:
        return of_rows, None
    sums = shared.weighed(facts, permuted_tokens, unpermuted_tokens_grad, places)
    return of_rows, sums.reshape(probs.shape)
