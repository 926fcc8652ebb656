"""The built simulator, for the tests of this folder."""

import pytest

from .build import build
from .tree import Tree


@pytest.fixture(scope="session")
def tree() -> Tree:
    """Both generations and the custom package, built where they are not yet."""
    return build()
