"""Rules about the formats of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.declare.rules.rule import Fault, Rule, listed, refuses
from npucall.errors import FormatError
from npucall.tensors import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.declare.draft import Draft


def same_format(name: str, like: str) -> Rule:
    """Two tensors, if both are given, have one format."""

    def faults(draft: Draft) -> Iterator[Fault]:
        other = draft.tensor(like)
        for each, spec in draft.tensors((name,)):
            if other is not None and spec.format is not other.format:
                yield each, f"{other.format.name}, the format of {like}", spec.format.name

    return refuses(FormatError, f"format of {name} is that of {like}", (name,), faults)


def public_format(*names: str) -> Rule:
    """None of them is in a private format of the device."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for name, spec in draft.tensors(names):
            if spec.format.private:
                found = f"{spec.format.name}, which is private to the device"
                yield name, "a public format such as ND", found

    return refuses(FormatError, f"{listed(names)} are not in a private format", names, faults)


def format_of_rank(*names: str) -> Rule:
    """Each is in the format of its number of dimensions, as torch_npu tags it: NCL, NCHW, NCDHW."""

    def faults(draft: Draft) -> Iterator[Fault]:
        for name, spec in draft.tensors(names):
            own = Format.of_rank(len(spec.shape))
            if spec.format is not own:
                yield name, f"{own.name}, as it has {len(spec.shape)} dimensions", spec.format.name

    text = f"{listed(names)} are NCL, NCHW or NCDHW by their number of dimensions"
    return refuses(FormatError, text, names, faults)


def format_in(name: str, *formats: Format) -> Rule:
    """The tensor has one of these formats."""
    expected = listed(tuple(each.name for each in formats), "or")

    def faults(draft: Draft) -> Iterator[Fault]:
        for each, spec in draft.tensors((name,)):
            if spec.format not in formats:
                yield each, expected, spec.format.name

    return refuses(FormatError, f"format of {name} is {expected}", (name,), faults)
