"""The gRPC services of the server.

Its modules, from the top::

    operators, access, account  OperatorService; AccessService, and its account
    sessions, streams         SessionService; ExecuteStream
    health, reflection        the standard services of health and reflection
    parsing, who              requests from their bytes; what callers may see of each other
"""
