"""A call with inputs that arrive in pieces: each piece is computed on arrival, then dropped.

For calls in which a block needs only a range of each input: elementwise, with dense tensors of one
shape and with single numbers. Results have the bits that ``evaluate.run`` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from npucall.compute import evaluate
from npucall.compute.helpers import UNLIMITED, Helpers, Turn
from npucall.compute.recipes import recipe_of
from npucall.compute.work import Work
from npucall.declare.cuts import cut
from npucall.declare.prepare import Prepared
from npucall.dtypes import AnyArray
from npucall.errors import InternalError
from npucall.tensors import Buffer


class Piece(NamedTuple):
    """A range of the elements of every input that is read."""

    start: int
    stop: int
    inputs: Mapping[str, Buffer]
    """The bytes of these elements, by name; of a single number all of its bytes."""


def takes_pieces(call: Prepared) -> bool:
    """Whether ``run`` can compute a call from pieces.

    At least one input that is read must have as many elements as the output: the pieces count those
    elements, and would else leave memory unwritten.
    """
    work = recipe_of(call).work
    if work is None or not work.flat:
        return False
    (elements,) = work.space
    sent = not call.outputs.keys().isdisjoint(call.stored)
    counted = any(layout.shape == work.space for layout in work.inputs.values())
    return (
        elements > 1
        and not sent
        and counted
        and all(call.inputs[name].row_major for name in work.inputs)
    )


def _nobody(_: Sequence[Buffer], __: int) -> None:
    pass


def run(
    call: Prepared,
    pieces: Iterable[Piece],
    turn: Turn = UNLIMITED,
    helpers: Helpers | None = None,
    computed: Callable[[Sequence[Buffer], int], object] = _nobody,
) -> list[Buffer]:
    """Computes such a call from pieces that follow each other, from 0 on.

    Waits for each as long as its iterator does, without a turn. No memory of a piece is held when
    the next one is asked for. ``computed`` hears the outputs, and how many elements of each will
    not change any more. Raises InternalError where they leave anything of the outputs unwritten:
    its memory held what others have freed.
    """
    recipe = recipe_of(call)
    work = recipe.work
    assert work is not None  # noqa: S101  # takes_pieces
    storages = [answer.storage(None, None) for answer in recipe.answers]
    outputs = [layout.over(data) for layout, data in zip(work.outputs, storages, strict=True)]
    (elements,) = work.space
    reached = 0
    for piece in pieces:
        if piece.start != reached:
            raise _gap(piece.start, reached)
        reached = piece.stop
        targets = [output[piece.start : piece.stop] for output in outputs]
        inputs = _arrays(work, piece)
        cuts = cut(targets[0].shape, work.block)
        evaluate.compute_blocks(work, inputs, targets, cuts, turn, helpers)
        del piece, inputs  # freed before the iterator waits for the next one
        computed(storages, reached)
    if reached != elements:
        raise _gap(elements, reached)
    return storages


def _gap(found: int, reached: int) -> InternalError:
    return InternalError(f"pieces: expected one that starts at element {reached}, found {found}")


def _arrays(work: Work, piece: Piece) -> Sequence[AnyArray]:
    count = piece.stop - piece.start
    shapes = [(1,) if o.layout.shape == (1,) else (count,) for o in work.operands]
    return [
        operand.layout._replace(shape=shape).over(piece.inputs[operand.name])
        for operand, shape in zip(work.operands, shapes, strict=True)
    ]
