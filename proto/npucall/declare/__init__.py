"""How an operator is declared, and how a call of it is checked.

An operator file needs these names and ``rules``; the modules have the rest.
"""

from npucall.declare import rules
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator, Sample, Values, operator
from npucall.declare.domain import at_once, elementwise, rows
from npucall.declare.facts import Facts
from npucall.declare.parameters import Attribute, Input, Kind, Output, Parameter, Scalar, choice

__all__ = [
    "Attribute",
    "Catalogue",
    "Facts",
    "Input",
    "Kind",
    "Operator",
    "Output",
    "Parameter",
    "Sample",
    "Scalar",
    "Values",
    "at_once",
    "choice",
    "elementwise",
    "operator",
    "rows",
    "rules",
]
