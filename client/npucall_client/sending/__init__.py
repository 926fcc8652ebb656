"""Calls travel to a server and back.

Its modules, from the top::

    channel            a server at a target: calls, sessions, shared memory, reservations
    link               sends bytes and receives bytes: repeats, credentials, gRPC's errors
    probe              whether a server answers, and why none does
    channels           gRPC's channels, and new ones when certificates change
    large_call         one large call on a stream of its own
    stream, streams    many calls on one stream; a stream for each session
    sessions           uploads, downloads, programs
    server_limits      what a server allows, and so how a call travels
    own_calls          calls that may have ended a server, sent again one by one
    writer             what a pipeline sends
    following          attempts at one call, and which of them were lost
    losses             whether a call may make its servers end
    retry              whether a call is sent once more, and when
    failures           errors of npucall from those of gRPC
    strangers          what answers at a target that is no server of npucall
    credentials        tokens, and when the client asks for new ones
    progress           tells the caller how much has travelled
    service            names and options of the services
    transfer           a call as messages and frames, and its answer
    proxy              the way to a server: straight, or through a proxy
    pipeline           many calls in flight
    reservations       a reservation that is renewed
    transport          what a client asks of a server, or of this process
    session_transport  what a session asks of it
    loop, threads      wait and send on an event loop, or by threads
    senders            what both of them do
    tracing            spans of OpenTelemetry
"""
