"""The CPU reference: prepared calls and their arrays become outputs.

Its modules, from the top::

    steps, batching     the steps of a program; small ones of a kind, computed as one
    pieces              a call with inputs that arrive in pieces
    evaluate            a prepared call and its arrays become outputs, block by block
    recipes, whole      what follows from a call before it runs; a call of one block
    blocks, rows, work  how calls are cut into blocks: by elements, by rows; what both have
    helpers             the blocks of one call on several threads
    sums                sums of blocks, in an order that depends on shapes alone
    operands, layouts   arrays as a formula takes them; arrays seen through their specs
    conversions         arrays from one dtype to another, by their bits
"""
