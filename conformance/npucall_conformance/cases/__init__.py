"""Cases, and the calls that are made from them.

Its modules, from the top::

    select                    which cases a run has
    blocks                    the blocks of cases, and what each tries
    product_cases, large      cases of products, types and defaults; large ones
    written_cases, written_arithmetic  calls whose results are written out
    maker                     makes a whole case
    made_call, case           the call of a case; what a case is
    arrangements              layouts in memory
"""
