"""The operators, one a file. ``CATALOGUE`` has all of them: they are found, not listed."""

from npucall.operators.catalogue import Catalogue, operators_of

__all__ = ["CATALOGUE"]

CATALOGUE = Catalogue(operators_of(__name__, __path__))
