"""The built simulator, for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import launches
from .build import build
from .caller import Caller
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def tree() -> Tree:
    """Both generations and the custom package, built where they are not yet."""
    return build()


@pytest.fixture(scope="module")
def caller(tree: Tree) -> Iterator[Caller]:
    """Calls operators through C, in this process."""
    with Caller(tree) as caller:
        yield caller


@pytest.fixture(params=["described", "called"])
def launch(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a kernel: told by a description that Python made, or by a call of the C functions."""
    if request.param == "described":
        return launches.launch
    called: Caller = request.getfixturevalue("caller")
    return called.launch
