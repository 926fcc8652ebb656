"""How an operator is declared, and how a call of it is checked.

An operator file needs these names and ``rules``; the modules have the rest.

Its modules, from the top::

    samples            a small valid call of every operator
    catalogue          operators by name and variant
    prepare            a call and a product become a prepared call, or an error
    attributes         what Python gives for an attribute, as its C type holds it
    declaration        ``Operator`` and ``@operator``
    draft              a call while its rules run
    rules              the vocabulary of checks
    call, facts        what a caller asks for; what a formula is told of it
    names, help_texts  names that callers may use; how an operator looks in a notebook
    domain, cuts       what a formula works on; how a shape is cut into blocks
    parameters         inputs, outputs, attributes and their C types
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
