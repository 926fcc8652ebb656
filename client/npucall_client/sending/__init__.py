"""Calls travel to a server, or to the members of a pool, and back.

Its modules, from the top::

    remote             what a client asks; one server
    pipeline_calls     the calls of a pipeline in flight
    stream, writer     one stream with many calls; what it sends
    remote_sessions    what a session asks
    probe              the first question to a server, and why none answers
    execution          one attempt at a call
    link               one server: credentials, shared memory, gRPC's errors made ours
    large_call         a call in chunks on a stream of its own
    attempts           the only loop that sends again
    follow_ups         the table of what follows from an error
    request            what belongs to one call, as one value
    channels           gRPC's channels, and new ones when certificates change
    server_limits      what a server allows, and so how a call travels
    failures           errors of npucall from those of gRPC
    strangers          what answers at a target that is no server of npucall
    credentials        tokens, and when the client asks for new ones
    progress           tells the caller how much has travelled
    service            names and options of the services
    transfer           a call as messages and frames, and its answer
    proxy              the way to a server: straight, or through a proxy
    pipeline           many calls in flight, as their caller sees them
    reservations       a reservation that is renewed
    transport          what a client asks of a server, or of this process
    session_transport  what a session asks of it
    loop, threads      wait on an event loop, or by threads
    loop_carrier       gRPC for asyncio
    thread_carrier     gRPC for callers that block
    senders            what both of them do
    tracing            spans of OpenTelemetry
"""
