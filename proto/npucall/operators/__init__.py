"""The operators, one a file. ``CATALOGUE`` has all of them: they are found, not listed."""

from functools import partial

from npucall.declare.catalogue import Catalogue, operators_of

__all__ = ["CATALOGUE", "DEFAULT_VARIANT"]

CATALOGUE = Catalogue(partial(operators_of, __name__, __path__))

DEFAULT_VARIANT = "documented"
"""What a CPU reference runs if nobody names a variant and the product has this one
[src:kl-div-target].
"""
