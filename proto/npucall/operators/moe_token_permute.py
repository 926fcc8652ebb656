"""Tokens in the order of their experts, back again, and the gradients of both."""

from math import prod

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import INT32, INT64, AnyArray, Array
from npucall.errors import AttributeValueError
from npucall.operators import _routing as shared
from npucall.operators._norms import no_zero
from npucall.operators._routing import INDEX, ON, late
from npucall.tensors import Shape


def rows_of(draft: Draft) -> int:
    """How many rows are left of those that are sent to experts."""
    every, wanted = prod(draft.shape("indices")), draft.attribute("num_out_tokens")
    return min(every, wanted) if wanted > 0 else max(every + wanted, 0)


@operator(
    "aclnnMoeTokenPermute",
    Input("tokens", "the tokens, (T, ...)"),
    Input("indices", "the experts of each, (T, K) or (T)", as_is=True),
    Attribute("num_out_tokens", Kind.INT64, "rows that are kept; 0 all, below 0 but so many"),
    shared.PADDED,
    Output("permute_tokens_out", "a row for each expert of each", "rows", "tokens", const=True),
    Output("sorted_indices_out", "the place of each", "places", "place", const=True, as_is=True),
    checks=(
        rules.present("tokens", "indices", "permute_tokens_out", "sorted_indices_out"),
        rules.supported("tokens"),
        rules.dtype_in("indices", INT32, INT64),
        rules.same_dtype("permute_tokens_out", as_="tokens"),
        rules.dtype_in("sorted_indices_out", INT32),
        rules.dtype_from("indices", into="place", make=lambda _: INT32),
        shared.UNPADDED,
        *late(rules.rank_is("tokens", *range(2, 9)), rules.rank_is("indices", 1, 2)),
        *late(*no_zero("tokens", "indices")),
        shared.within(
            "experts for each token",
            "indices",
            lambda draft: draft.shape("indices")[0] == draft.shape("tokens")[0],
            "tokens",
        ),
        shared.within(
            f"at most {shared.MOST} experts of a token",
            "indices",
            lambda draft: prod(draft.shape("indices")[1:]) <= shared.MOST,
        ),
        *late(
            rules.requires(
                "a number that leaves rows",
                "num_out_tokens",
                holds=lambda draft: rows_of(draft) > 0,
                found=lambda draft: draft.attribute("num_out_tokens"),
                error=AttributeValueError,
            ),
            rules.shape_of(
                "tokens", into="rows", make=lambda d: (rows_of(d), *d.shape("tokens")[1:])
            ),
            rules.shape_of("indices", into="places", make=lambda d: (prod(d.shape("indices")),)),
            rules.same_shape("permute_tokens_out", "rows", "the tokens' rows that are kept"),
            rules.same_shape("sorted_indices_out", "places", "one for each index"),
        ),
    ),
    kernel_dtype=rules.dtype_of("tokens"),
    over=at_once(widen=False, holds=lambda facts, _: 40 * facts.count("places")),
    sample=Sample({"tokens": (2, 3), "indices": (2, 2)}, {"indices": INT64}),
    source="ops-transformer moe/moe_token_permute: page aclnnMoeTokenPermute; order of equal "
    "experts and statuses decided",
    **ON,
)
def moe_token_permute(
    facts: Facts,
    tokens: Array,
    indices: Array,
    num_out_tokens: int = 0,
    padded_mode: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Rows of ``tokens`` in the order of their experts, and the place of each.

    With K experts of each token, and ``indices`` in one row::

        order = argsort(indices)
        sorted_indices_out[order[j]] = j
        permute_tokens_out[j] = tokens[order[j] // K]

    Rows of one expert keep their order, which the page leaves open. ``num_out_tokens`` keeps so
    many rows, 0 all; below 0 so many are dropped. Nothing is computed, so every number keeps its
    bits. Tensors without elements, and other shapes, are refused (561002), ``padded_mode`` too.

    As ``npu_moe_token_permute`` of torch_npu.
    """
    del num_out_tokens, padded_mode
    order = np.argsort(np.asarray(facts.read(indices, ...)).reshape(-1), kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    experts = len(order) // tokens.shape[0]
    shape: Shape = facts.shapes["rows"]
    out = facts.output("permute_tokens_out", shape)

    def look_up(block: tuple[slice, ...]) -> None:
        rows, *rest = block
        out[block] = facts.read(tokens, (order[rows] // experts, *rest))

    facts.each(cut(shape, BLOCK), look_up)
    return out, places.astype(np.int32)


@operator(
    "aclnnMoeTokenPermuteGrad",
    Input("permuted_output_grad", "gradients of the rows, (rows, H)"),
    INDEX,
    Attribute("num_topk", Kind.INT64, "K, the experts of a token"),
    shared.PADDED,
    Output("out", "gradient of the tokens, (T, H)", "tokens", "permuted_output_grad"),
    checks=(
        rules.present("permuted_output_grad", "sorted_indices", "out"),
        rules.supported("permuted_output_grad"),
        rules.dtype_in("sorted_indices", INT32),
        rules.same_dtype("out", as_="permuted_output_grad"),
        shared.UNPADDED,
        *shared.matrices("permuted_output_grad"),
        *late(
            rules.rank_is("sorted_indices", 1),
            *no_zero("sorted_indices"),
            rules.value_fits(
                f"1 to {shared.MOST}", "num_topk", lambda experts: 1 <= experts <= shared.MOST
            ),
        ),
        *late(
            rules.requires(
                "a divisor of the number of places",
                "num_topk",
                holds=lambda d: d.shape("sorted_indices")[0] % d.attribute("num_topk") == 0,
                found=lambda d: f"{d.attribute('num_topk')} for {d.shape('sorted_indices')}",
                error=AttributeValueError,
            )
        ),
        shared.within(
            "no more rows than places",
            "permuted_output_grad",
            lambda d: d.shape("permuted_output_grad")[0] <= d.shape("sorted_indices")[0],
            "sorted_indices",
        ),
        rules.shape_of("sorted_indices", into="places", make=lambda d: d.shape("sorted_indices")),
        rules.shape_of(
            "permuted_output_grad",
            into="tokens",
            make=lambda draft: (
                draft.shape("sorted_indices")[0] // draft.attribute("num_topk"),
                draft.shape("permuted_output_grad")[1],
            ),
        ),
        *late(rules.same_shape("out", "tokens", "a row for each token")),
    ),
    kernel_dtype=rules.dtype_of("permuted_output_grad"),
    over=at_once(holds=lambda facts, _: 8 * facts.count("places")),
    values=shared.checked(sorted_indices="places"),
    sample=Sample({"sorted_indices": (2,)}, {"sorted_indices": INT32}, {"num_topk": 2}),
    source="ops-transformer moe/moe_token_permute_grad: page aclnnMoeTokenPermuteGrad, its tiling",
    **ON,
)
def moe_token_permute_grad(
    facts: Facts,
    permuted_output_grad: Array,
    sorted_indices: Array,
    num_topk: int,
    padded_mode: bool = False,
) -> AnyArray:
    """Gradient of ``moe_token_permute`` with respect to its tokens.

    ::

        out[t] = sum over k of permuted_output_grad[sorted_indices[t * K + k]]

    Sums are taken in float32, and rounded once. A place behind the last row is that of a row which
    was dropped, and adds nothing; one that is none is refused (161002) when the call runs, where a
    device would read foreign memory.

    As the sum of ``index_select`` in torch.
    """
    del padded_mode
    places = np.asarray(facts.read(sorted_indices, ...))
    shared.check_places(facts, "sorted_indices", places)
    return shared.gathered(facts, permuted_output_grad, places, num_topk)
