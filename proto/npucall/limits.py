"""The limits of the contract, and the lengths that both sides prefer.

The proto states those that a client in another language has to know; a test compares the two.

A server's own limits are settings; it sends them in ``GetServerInfoResponse.limits``.
"""

KIB, MIB, GIB = 2**10, 2**20, 2**30

# Calls and tensors.
MAX_CALL_BYTES = 64 * KIB
"""Of a serialised ``Call``."""
MAX_RANK = 32
"""Most dimensions in a message; more than 8, so that an operator's own rule can refuse the
ninth."""
MAX_TENSOR_BYTES = 2**63 - 1
"""Of a view or a storage, however much memory there is."""
CACHED_CALL_BYTES = 8 * KIB
"""Of a serialised call; the result of checking a larger one is not kept."""
CACHED_CALLS = 1024
"""Number of replies and of spellings of calls that a client keeps."""
KNOWN_CALLS_BYTES = 16 * MIB
"""Of all calls that a process keeps the checks of, about. Where there is no room, the oldest of the
owner with the most goes."""
CACHED_CALL_VALUES = 256
"""Tensors and members of lists of a call; a call with more is not kept."""

# Messages.
MAX_MESSAGE_BYTES = 2**31 - 1
"""What protobuf and gRPC can hold in one message."""
MAX_ANSWER_BYTES = 2**31 - MIB
"""Of outputs in one message; the rest is for the other fields."""
MAX_FIELDS = 4096
"""Of a request at its top level, and of a call at any depth, including unknown fields. This limits
the time that hostile bytes can take."""
MAX_NESTED_FIELDS = 8 * MAX_FIELDS
"""Of a request or frame at any depth: enough for so many storages and a call."""
MAX_DEPTH = 100
"""Of messages and groups within each other; the same limit as protobuf's."""
MAX_OVERHEAD_BYTES = 256 * KIB
"""Of a request or frame without the data of its storages: its call, lengths, padding and unknown
fields."""
ALIGNMENT = 16
"""Data starts at a multiple of this within a message. So do CPython's bytes objects in memory."""
FRAME_BYTES = 64
"""Most bytes of a chunk's frame without its data."""

# Streams.
MAX_CHUNK_BYTES = 16 * MIB
"""Most data of one chunk."""
CHUNK_BYTES = 2 * MIB
"""Data in each chunk that we send, unless a setting says otherwise. Chunks of half the length take
an eighth more CPU time. Chunks of twice the length hold the interpreter's lock so long that small
calls at the same time take twice as long. Frames must stay below 4 MiB, the default limit of gRPC's
clients."""
INLINE_BYTES = MIB
"""Most bytes of storage within the frame of a call or reply; larger ones follow in chunks."""
MAX_STORAGE_INDEX = 2**32 - 1
"""The largest value of ``Chunk.storage``."""
MAX_ID_GAPS = 65_536
"""Of gaps between a stream's call ids; this limits the memory for them."""

# Shared memory.
REGION_ID_BYTES = 16
"""Of the id of a region; the server chooses it at random."""
MAX_REGIONS = 256
"""Regions that a server shares at a time. Each needs two file descriptors: its connection and its
mapping."""
MAX_SIDE_ANSWER_BYTES = 64 * KIB
"""Of the packet with which a side socket answers."""

# Sessions and programs.
HANDLE_BYTES = 16
"""Of the id of a handle; the caller chooses it at random."""
DIGEST_BYTES = 32
"""Of a SHA-256."""
MAX_ENTRIES = 4096
"""Of an upload, a release, or a question for digests."""
MAX_HANDLES = 65_536
"""Filled handles of a session at a time."""
MAX_PAST_HANDLES = 1024
"""Handles of a session that the server remembers as released or failed; it forgets older ones. This
limits the memory for ids."""
MAX_SESSION_CHARACTERS = 128
"""Of a session's id."""
MAX_PROGRAM_STEPS = 256
"""Of a program."""
MAX_PROGRAM_OVERHEAD_BYTES = MIB
"""Of a program without the data of its storages."""
FRAMES_PER_MESSAGE = 64
"""Most frames in one message of a stream."""

# Pools.
MAX_MEMBER_BYTES = 16 * KIB
"""Of a member as a message, from a server to a directory and from there to clients."""
MAX_MEMBERS = 8192
"""Members in a directory; it refuses more."""
MAX_MEMBERS_OF_CALLER = 4096
"""Members that one caller may announce, so that no caller can fill the table."""
MAX_LABELS = 32
"""Of a server."""
MAX_LABEL_NAME_BYTES = 63
"""Of the name of a label."""
MAX_LABEL_VALUE_BYTES = 256
"""Of the value of a label."""

# Texts.
MAX_NAME_BYTES = 256
"""Of names and messages of calls that a server keeps and logs; it cuts longer ones."""
MAX_TRACEBACK_CHARACTERS = 16 * KIB
"""Of a traceback in the log, and of a text of an event; the server leaves out the middle of a
longer one."""
MAX_REQUEST_ID_CHARACTERS = 128
"""Of a caller's own name for a call."""
MAX_TEXT_BYTES = 2 * KIB
"""Of a text in an error on the wire, and of the driver's text in the log."""
MAX_TRAILER_BYTES = 7 * KIB
"""gRPC has a soft limit of 8 KiB for all trailers."""
