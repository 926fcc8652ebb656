"""All that knows protobuf: what is declared, asked and answered, and its bytes.

Its modules, from the top::

    rpcs              the RPCs: a row for each
    stream_messages   messages of several frames
    uploads           frames of uploads
    frames            frames of streams
    listing           an operator and its message
    program_messages  the messages of programs
    replies           replies, timings, and who answers
    status            an error and ``google.rpc.Status``
    calls             a call and its bytes; the cache of prepared calls
    messages          ``ExecuteRequest`` and ``ExecuteResponse``, with their bulk data
    places            where storages and outputs are
    protobuf          protobuf's wire format
"""
