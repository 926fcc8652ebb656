"""Elements of a tensor by their places along a dimension: looked up, and added to."""

from typing import Any

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOATS,
    HALF_AND_SINGLE,
    INT64,
    UINT16,
    UINT32,
    UINT64,
    AnyArray,
    Array,
)
from npucall.operators import _arithmetic as arithmetic
from npucall.operators import _indexing as shared
from npucall.operators._labels import check_labels
from npucall.operators._rows import numbers_of
from npucall.operators._scatter import HELD, OF_TARGET, Sorted
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

ONE_BY_ONE = (DOUBLE, *arithmetic.INTEGERS, UINT16, UINT32, UINT64, BOOL)
NEITHER_EMPTY = "if index has elements"


def has_elements(draft: Draft) -> bool:
    """Whether there are indices."""
    return 0 not in draft.shape("index")


def found_in(*names: str) -> Any:
    """What a message says of shapes."""
    return lambda draft: " and ".join(str(draft.shape(name)) for name in names)


def ranks_equal(*names: str) -> rules.Rule:
    """As many dimensions as self; 0 counts as 1."""

    def holds(draft: Draft) -> bool:
        ranks = {len(shared.as_shape(draft.shape(name))) for name in ("self", *names)}
        return len(ranks) == 1

    return rules.requires(
        "as many dimensions as self has", *names, holds=holds, found=found_in(*names, "self")
    )


def within(name: str, *, along: bool) -> rules.Rule:
    """Index is nowhere longer than a tensor; ``along``: along the dimension too."""

    def holds(draft: Draft) -> bool:
        index, other = (shared.as_shape(draft.shape(each)) for each in ("index", name))
        axis = draft.attribute("dim") % len(index)
        return all(
            a <= b or (n == axis and not along)
            for n, (a, b) in enumerate(zip(index, other, strict=True))
        )

    text = f"extents of at most those of {name}" + (" but along dim" if not along else "")
    return rules.requires(text, "index", holds=holds, found=found_in("index", name))


@operator(
    "aclnnGather",
    Input("self", "what is looked up"),
    shared.CONST_DIM,
    Input("index", "places along dim", as_is=True),
    Output("out", "an element for each", shape="index", dtype="self"),
    products=dict.fromkeys((A2, A3), (*FLOATS, *ONE_BY_ONE)),
    legacy={
        ASCEND_950: (*FLOATS, *ONE_BY_ONE),
        **dict.fromkeys((ASCEND_910, ASCEND_310P), (*HALF_AND_SINGLE, *ONE_BY_ONE)),
    },
    checks=(
        rules.present("self", "index", "out"),
        rules.supported("self"),
        rules.when(has_elements, shared.INDEX, NEITHER_EMPTY),
        rules.same_dtype("out", as_="self"),
        ranks_equal("index"),
        rules.rank_at_most(8, "self", "index", "out"),
        rules.same_shape("out", "index"),
        rules.dim_of("self"),
        shared.ALONG,
        rules.succeed_if_empty("index"),
        within("self", along=False),
        rules.requires(
            "elements along dim, since there are indices",
            "self",
            holds=lambda draft: draft.shape("along") != (0,),
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(widen=False),
    values=shared.PLACES,
    sample=Sample({"self": (4, 9), "index": (2, 9)}, {"index": INT64}, {"dim": 0}),
    area="indexing",
    torch="gather",
    source="ops-nn index/gather_elements_v2: page aclnnGather, order and products in its source",
)
def gather(facts: Facts, self: Array, dim: int, index: Array) -> AnyArray:
    """Elements of ``self`` by their places along ``dim``.

    For dim 0 of two dimensions::

        out[i, j] = self[index[i, j], j]

    Nothing is computed, so every number keeps its bits. ``index`` has as many dimensions as self,
    and along others than dim at most its extents. An index that is no place is refused (161002)
    when the call runs: CANN's page allows negative ones, which some kernels read as foreign memory.

    As ``gather`` in torch.
    """
    shape = shared.as_shape(index.shape)
    axis = dim % len(shape)
    out = facts.output("out", index.shape)

    def look_up(block: tuple[slice, ...]) -> None:
        places = shared.part(facts, index, block)
        check_labels("index", places, facts.first("along"))
        grid: list[Any] = list(np.ogrid[block])
        grid[axis] = places
        found = shared.part(facts, self, tuple(grid))
        out[block if index.shape else ()] = found if index.shape else found.reshape(())

    facts.each(cut(shape, BLOCK), look_up)
    return out


def numbers(facts: Facts, index: Array, shape: Shape, axis: int) -> AnyArray:
    """The numbers, in row-major order, of the elements of self that are added to."""
    places = np.asarray(shared.part(facts, index, ...), np.int64)  # type: ignore[arg-type]
    check_labels("index", places, shape[axis])
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    places = places * strides[axis]
    for other, grid in enumerate(np.ogrid[tuple(slice(0, n) for n in places.shape)]):
        if other != axis:
            places += grid * strides[other]
    return places.reshape(-1)


@operator(
    "aclnnScatterAdd",
    Input("self", "what is added to"),
    shared.DIM,
    Input("index", "places along dim", as_is=True),
    Input("src", "what is added: an element for each of index"),
    Output("out", "the sums", shape="self", dtype="self"),
    products=dict.fromkeys(
        (A2, A3, ASCEND_950),
        (*FLOATS, DOUBLE, COMPLEX64, COMPLEX128, *arithmetic.INTEGERS, BOOL),
    ),
    checks=(
        rules.present("self", "index", "src", "out"),
        rules.supported("self"),
        rules.same_dtype("src", "out", as_="self"),
        rules.when(has_elements, shared.INDEX, NEITHER_EMPTY),
        rules.same_shape("out", "self"),
        *(
            rules.when(has_elements, rule, NEITHER_EMPTY)
            for rule in (
                ranks_equal("index", "src"),
                within("src", along=True),
                rules.dim_of("self"),
                within("self", along=False),
                rules.rank_at_most(8, "self"),
                shared.ALONG,
            )
        ),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(
        holds=lambda facts, _: HELD * facts.count("index") + OF_TARGET * facts.count("self")
    ),
    values=shared.PLACES,
    sample=Sample(dtypes={"index": INT64}, attributes={"dim": 0}),
    area="indexing",
    torch="scatter_add",
    source="ops-nn index/scatter_elements_v2: page aclnnScatterAdd, order of its checks",
)
def scatter_add(facts: Facts, self: Array, dim: int, index: Array, src: Array) -> AnyArray:
    """``self`` with elements of ``src`` added at places along ``dim``.

    For dim 0 of two dimensions::

        out = self;  out[index[i, j], j] += src[i, j]

    It is the gradient of ``aclnnGather``. ``index`` and ``src`` have as many dimensions as self;
    index is nowhere longer than src, and but along dim than self. Elements of one place are added
    in row-major order, FLOAT16 and BF16 in float32, floats from 64 of them on in float64, and
    rounded once; Atlas A2 and A3 may round each sum. Integers wrap around, and BOOL is "or". An
    index without elements may have any shape and dtype: out is self then. An index that is no place
    is refused (161002) when the call runs.

    As ``scatter_add`` in torch.
    """
    shape, out = shared.as_shape(self.shape), facts.output("out", self.shape)
    axis = dim % len(shape) if 0 not in index.shape else 0
    places = numbers(facts, index, shape, axis) if 0 not in index.shape else np.zeros(0, np.int64)
    found = Sorted.of(places, facts.count("self"))
    of_index = shared.as_shape(index.shape)

    def add_up(block: tuple[slice, ...]) -> None:
        def read(elements: AnyArray) -> AnyArray:
            return shared.part(facts, src, np.unravel_index(elements, of_index)).reshape(-1, 1)

        start = shared.part(facts, self, block)
        total = found.added(start.reshape(-1, 1), read, numbers_of(shape, block))
        out[block if self.shape else ()] = total.reshape(start.shape if self.shape else ())

    facts.each(cut(shape, BLOCK), add_up)
    return out
