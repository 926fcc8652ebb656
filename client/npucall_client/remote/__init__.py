"""Calls on a server.

Its modules, from the top::

    channel          a server at a target: calls, sessions, shared memory, reservations
    link             bytes to the server and back: repeats, credentials, gRPC's errors
    channels         gRPC's channels, and new ones when certificates change
    large_call       one large call on a stream of its own
    stream, streams  many calls on one stream; a stream for each session
    sessions         uploads, downloads, programs
    server_limits    what a server allows, and so how a call travels
    own_calls        calls that may have ended a server, sent again one by one
    writing          what a pipeline sends
    following        attempts at one call, and what was lost of it
    losses           whether a call may be what ends its servers
    retry            whether a call is sent once more, and when
    failures         what gRPC's end of a call means
    probing          what answers at a target where the connection failed
    credentials      tokens, and when they are asked again
    progress         tells the caller how much has travelled
    service          names and options of the services
    transfer         a call as messages and frames, and its answer
    ways             the way to a server: straight, or through a proxy
"""
