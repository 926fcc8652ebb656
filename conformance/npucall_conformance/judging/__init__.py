"""Decides which answer is right, and how near an answer has to come.

Its modules, from the top::

    check                 an answer against what was expected
    written_answers       the answers of cases that are written by hand
    benchmark, tolerance  errors of two devices as multiples; how near an answer has to come
    bias                  whether rounding leans to one side
    truth                 what a call must answer
"""
