"""Python's arguments become a call, and its answer becomes arrays; nothing travels here.

Its modules, from the top::

    options         options, results, plans; binds arguments with the options of a client
    answers         outputs of a reply
    arguments       a Python call becomes a call of the contract, with its cache
    argument_texts  the same from a command line
    hints           Python's hints in errors, and warnings
    arrays          what callers hold for a tensor
    tensors         tensors that a session holds, as a call sees them
"""
