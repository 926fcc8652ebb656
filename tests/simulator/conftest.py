"""The built simulator, for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .build import build
from .caller import Caller
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def tree() -> Tree:
    """Both generations and the custom package, built where they are not yet."""
    return build()


@pytest.fixture(scope="module")
def caller(tree: Tree) -> Iterator[Caller]:
    """Calls operators through C, in this process."""
    with Caller(tree) as caller:
        yield caller
