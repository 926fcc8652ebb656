"""The formulas of the operators that npucall does not declare.

Each row is an operator, its arguments in C order, and what then stands in its outputs.
"""

from typing import Any

import ml_dtypes
import numpy as np

from npucall.dtypes import AnyArray

from .caller import Caller

INT8, FLOAT = np.dtype(np.int8), np.dtype(np.float32)
ONES, ZEROS = [1, 1], [0, 0]


def f32(*values: object) -> AnyArray:
    return np.array(values, np.float32)


def bf16(*values: float) -> AnyArray:
    return np.array(values, ml_dtypes.bfloat16)


class Out:
    """An output: its content before, and what is to be in it then."""

    def __init__(self, before: AnyArray, after: Any) -> None:
        self.array, self.after = before, after

    def fits(self) -> bool:
        return self.array.tolist() == np.array(self.after).tolist()


def empty(shape: tuple[int, ...], after: Any, dtype: Any = np.float32) -> Out:
    return Out(np.empty(shape, dtype), after)


def rows() -> list[tuple[Any, ...]]:
    """Made anew for each run, which writes them."""
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    weight, grad = np.ones((2, 1, 3, 3), np.float32), np.ones((1, 2, 2, 2), np.float32)
    indices = np.array([0, 2, 2], np.int64)
    return [
        ("aclnnRsub", f32(10, 20), f32(1, 2), np.float32(0.5), empty((2,), [-4.0, -8.0])),
        ("aclnnRsub", bf16(1.0078125), bf16(1), np.float32(1.0234375),  # computed in single
         empty((1,), [-0.031494140625], ml_dtypes.bfloat16)),
        ("aclnnInplaceAdd", Out(f32(1, 2), [4.0, 5.0]), f32(1), np.int64(3)),
        ("aclnnMaximum", f32(1, 4), f32(3, 2), empty((2,), [3.0, 4.0])),
        ("aclnnMm", f32([1, 2]), f32([3], [4]), empty((1, 1), [[11.0]]), 1),
        ("aclnnRelu", f32(-1, 2), empty((2,), [0.0, 2.0])),
        ("aclnnInplaceRelu", Out(f32(-1, 2), [0.0, 2.0])),
        ("aclnnInplaceSigmoid", Out(f32(0), [0.5])),
        ("aclnnExp2", f32(3), empty((1,), [8.0])),
        ("aclnnReduceNansum", f32([1, 2], [3, np.nan]), [1], True, FLOAT,
         empty((2, 1), [[3.0], [3.0]])),
        ("aclnnCat", [f32(1), f32(2, 3)], 0, empty((3,), [1.0, 2.0, 3.0])),
        ("aclnnSplitWithSize", f32(1, 2, 3), [1, 2], 0, [empty((1,), [1]), empty((2,), [2, 3])]),
        ("aclnnCumsum", f32(1.5, -2.5), 0, INT8, empty((2,), [1, -1], np.int8)),
        ("aclnnInplaceCopy", Out(f32(0, 0), [7.0, 7.0]), f32(7)),
        ("aclnnForeachAddScalarList", [f32(1), f32(2)], [np.float32(10), np.float32(20)],
         [empty((1,), [11.0]), empty((1,), [22.0])]),
        ("aclnnResize", f32([[[1, 2]]]), [1.0, 1.0, 1.0, 2.0], "nearest",
         empty((1, 1, 1, 4), [[[[1.0, 1.0, 2.0, 2.0]]]])),
        ("aclnnAscendQuantV3", f32(0.6, 3, 900), f32(2), None, False, "round", 2, -1,
         empty((3,), [1, 6, 127], np.int8)),
        ("aclnnEmbeddingDenseBackward", f32([1], [2], [4]), indices, 3, 0, False,
         empty((3, 1), [[0.0], [0.0], [6.0]])),  # the padding is left out
        ("aclnnLayerNormBackward", f32([5, 7]), f32([1, 3]), [2], f32([2]), f32([1]), None, None,
         [False, True, True], None, empty((2,), [-5.0, 7.0]), empty((2,), [5.0, 7.0])),
        ("aclnnLayerNormBackward", f32([5, 5]), f32([1, 3]), [2], f32([2]), f32([1]), None, None,
         [True, False, False], empty((1, 2), [[0.0, 0.0]]), None, None),
        ("aclnnConvolutionBackward", f32([[[5]]]), f32([[[3]]]), f32([[[2]]]), [1], ONES, ZEROS,
         ONES, False, ZEROS, 1, [True, True, True], 0, empty((1, 1, 1, 1), [[[[10.0]]]]),
         empty((1, 1, 1, 1), [[[[15.0]]]]), empty((1,), [5.0])),
        ("aclnnConvolutionBackward", grad, x, weight, [2], ONES, ONES, ONES, False, ZEROS, 2,
         [True, False, False], 0, Out(np.empty_like(x), np.full(x.shape, 4.0)), None, None),
        ("aclnnVendorScale", f32(3), 1.5, empty((1,), [4.5])),
    ]  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.array if isinstance(value, Out) else value


def outputs(values: Any) -> list[Out]:
    nested = [outputs(each) for each in values if isinstance(each, list)]
    return [each for each in values if isinstance(each, Out)] + [o for each in nested for o in each]


def test_every_formula_gives_what_it_says(caller: Caller) -> None:
    wrong = []
    for name, *arguments in rows():
        package = "custom" if name == "aclnnVendorScale" else "builtin"
        caller.launch(name, *map(plain, arguments), package=package)
        if not all(output.fits() for output in outputs(arguments)):
            wrong.append((name, [output.array for output in outputs(arguments)]))
    assert wrong == []


def test_a_padded_convolution_in_two_groups_has_the_gradient_of_its_sums(caller: Caller) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    weight, grad = np.ones((2, 1, 3, 3), np.float32), np.ones((1, 2, 2, 2), np.float32)
    grad_weight = np.empty_like(weight)
    caller.launch(
        "aclnnConvolutionBackward", grad, x, weight, [2], ONES, ONES, ONES, False, ZEROS, 2,
        [False, True, False], 0, None, grad_weight, None,
    )  # fmt: skip
    assert grad_weight[:, 0, 1, 1].tolist() == [6.0, 22.0]


def test_a_seed_gives_its_own_random_numbers_and_arrives_whole(caller: Caller) -> None:
    seeds = (1, 1, 2, 2**40 + 1)
    first, second, *others = targets = np.empty((4, 4), np.float32)
    for target, seed in zip(targets, seeds, strict=True):
        caller.launch("aclnnInplaceNormal", target, 0.0, 1.0, seed, 0)
    assert first.tolist() == second.tolist()
    assert first.tolist() not in [other.tolist() for other in others]


# --- What phase one of some operators checks ------------------------------------------------------

PARAM_INVALID = 161002
ONE = np.float32(1)
HALF = np.dtype(np.float16)


def tensors(*shapes: tuple[int, ...]) -> list[AnyArray]:
    return [np.zeros(shape, np.float32) for shape in shapes]


CHECKED: list[tuple[str, list[Any], str]] = [
    ("aclnnRsub", [*tensors((2, 1), (3,)), ONE, *tensors((2, 3))], ""),
    ("aclnnRsub", [*tensors((2,), (3,)), ONE, *tensors((3,))],
     "self and other: shapes [2] and [3] do not broadcast"),
    ("aclnnRsub", [*tensors((2, 1), (3,)), ONE, *tensors((3, 2))],
     "out: expected shape [2,3], found [3,2]"),
    ("aclnnRsub", [*tensors((0,), (1,)), ONE, *tensors((0,))], ""),
    ("aclnnRsub", [*tensors((0,), (2,)), ONE, *tensors((2,))], "do not broadcast"),
    ("aclnnInplaceAdd", [*tensors((2, 3), (3,)), ONE], ""),
    ("aclnnInplaceAdd", [*tensors((3,), (2, 3)), ONE], "do not broadcast to the first"),
    ("aclnnMaximum", tensors((2,), (2,), (3,)), "out: expected shape [2], found [3]"),
    ("aclnnMm", [*tensors((2, 3), (3, 4), (2, 4)), 0], ""),
    ("aclnnMm", [*tensors((2, 3), (4, 3), (2, 3)), 0],
     "self and mat2: shapes [2,3] and [4,3] cannot be multiplied"),
    ("aclnnMm", [*tensors((2, 3), (3, 4), (4, 2)), 0], "out: expected shape [2,4], found [4,2]"),
    ("aclnnMm", [*tensors((3,), (3, 4), (4,)), 0],
     "self and mat2: shapes [3] and [3,4] are not those of matrices"),
    ("aclnnCumsum", [*tensors((2,)), 0, HALF, np.zeros(2, HALF)], ""),
    ("aclnnCumsum", [*tensors((2,)), 0, FLOAT, np.zeros(2, HALF)],
     "out: expected dtype 0, found 1"),
    ("aclnnCumsum", [*tensors((2,)), 0, HALF, np.zeros(3, HALF)],
     "out: expected shape [2], found [3]"),
    ("aclnnVendorScale", [*tensors((2,)), 2.0, np.zeros(2, HALF)],
     "out: expected dtype 0, found 1"),
]  # fmt: skip


def test_shapes_and_types_that_do_not_fit_are_refused(caller: Caller) -> None:
    wrong = []
    for name, arguments, text in CHECKED:
        status, said = caller.phase_one(name, *arguments)
        if (status, said) != (0, "") if not text else status != PARAM_INVALID or text not in said:
            wrong.append((name, text, status, said))
    assert wrong == []
