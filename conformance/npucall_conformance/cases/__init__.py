"""Cases, and the calls that are made from them.

Its modules, from the top::

    select                    which cases a run has
    blocks                    the blocks of cases, and what each tries
    declared, large, written_cases  cases from statements; large ones; written ones
    maker, written_arithmetic  makes a whole case; written calls of arithmetic
    calls, case               a case becomes a call; what a case is
    arrangements, written     layouts in memory; calls whose results are written out
"""
