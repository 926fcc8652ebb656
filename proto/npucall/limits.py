"""Every limit of the contract, and the lengths that both sides prefer.

The proto states those that a client in another language has to know; a test compares the two.

What a server allows besides, it tells in ``GetServerInfoResponse.limits``; those are its settings.
"""

KIB, MIB, GIB = 2**10, 2**20, 2**30

# Calls and tensors.
MAX_CALL_BYTES = 64 * KIB
"""Of a serialised ``Call``."""
MAX_RANK = 32
"""Most dimensions that travel, so that an operator's own rule can refuse the ninth."""
MAX_TENSOR_BYTES = 2**63 - 1
"""Of a view or a storage, whatever memory there is."""
CACHED_CALL_BYTES = 8 * KIB
"""Of a serialised call up to which what was found out about it is kept."""
CACHED_CALLS = 1024
"""Calls, replies and recipes that are kept."""
CACHED_CALL_VALUES = 256
"""Tensors and members of lists of a call up to which it is kept."""

# Messages.
MAX_MESSAGE_BYTES = 2**31 - 1
"""What protobuf and gRPC can hold in one message."""
MAX_ANSWER_BYTES = 2**31 - MIB
"""Of outputs in one message: some of it is for the rest."""
MAX_FIELDS = 4096
"""Of a request at its top, and of a call at any depth, unknown ones counted: what bounds the time
that hostile bytes can take."""
MAX_NESTED_FIELDS = 8 * MAX_FIELDS
"""Of a request or frame at any depth: what so many storages and a call can have."""
MAX_DEPTH = 100
"""Of messages and groups within each other, as protobuf has it."""
MAX_OVERHEAD_BYTES = 256 * KIB
"""Of a request or frame besides the data of its storages: its call, lengths, padding, and what
nobody knows."""
ALIGNMENT = 16
"""Data starts at a multiple of this within a message. CPython's bytes objects start at one too."""
FRAME_BYTES = 64
"""Most bytes of a chunk's frame besides its data."""

# Streams.
MAX_CHUNK_BYTES = 16 * MIB
"""Most data of one chunk."""
CHUNK_BYTES = 2 * MIB
"""Data of the chunks that we send unless a setting says otherwise. Half as long ones take an eighth
more CPU time; twice as long ones hold the interpreter's lock so long that small calls beside them
take twice as long. Frames must stay below 4 MiB, which is what gRPC's clients receive unless told
more."""
INLINE_BYTES = MIB
"""Most bytes of storage that stand in the frame of their call or reply; more follow in chunks."""
MAX_STORAGE_INDEX = 2**32 - 1
"""What ``Chunk.storage`` can hold."""
MAX_ID_GAPS = 65_536
"""Of a stream's call ids that do not follow each other: what bounds the memory that they take."""

# Shared memory.
REGION_ID_BYTES = 16
"""Of the id of a region, which a server chooses at random."""
MAX_REGIONS = 256
"""That a server shares at a time. Each takes two descriptors: its connection, and its mapping."""
MAX_SIDE_ANSWER_BYTES = 64 * KIB
"""Of the packet with which a side socket answers."""

# Sessions and programs.
HANDLE_BYTES = 16
"""Of a handle's id, which its caller chooses at random."""
DIGEST_BYTES = 32
"""Of a SHA-256."""
MAX_ENTRIES = 4096
"""Of an upload, a release, or a question for digests."""
MAX_HANDLES = 65_536
"""Of a session that are filled at a time."""
MAX_PAST_HANDLES = 1024
"""Of a session that are remembered as released, or as impossible to fill; older ones are forgotten:
what bounds the memory that ids take."""
MAX_SESSION_CHARACTERS = 128
"""Of a session's id."""
MAX_PROGRAM_STEPS = 256
"""Of a program."""
MAX_PROGRAM_OVERHEAD_BYTES = MIB
"""Of a program besides the data of its storages."""
FRAMES_PER_MESSAGE = 64
"""Frames that one message of a stream carries at the most."""

# Pools.
MAX_MEMBER_BYTES = 16 * KIB
"""Of a member, as a server announces it and a directory tells it."""
MAX_MEMBERS = 8192
"""That a directory lists; further ones are refused."""
MAX_MEMBERS_OF_CALLER = 4096
"""Of these, those that one caller announced: nobody fills the table."""
MAX_LABELS = 32
"""Of a server."""
MAX_LABEL_NAME_BYTES = 63
"""Of the name of a label."""
MAX_LABEL_VALUE_BYTES = 256
"""Of the value of a label."""

# Texts.
MAX_NAME_BYTES = 256
"""Of names and messages of calls as a server keeps and logs them; what is longer is cut."""
MAX_TRACEBACK_CHARACTERS = 16 * KIB
"""Of a traceback in the log, and of a text of an event; the middle of a longer one is left out."""
MAX_REQUEST_ID_CHARACTERS = 128
"""Of a caller's own name for a call."""
MAX_TEXT_BYTES = 2 * KIB
"""Of a text in an error as it travels, and of the driver's words in the log."""
MAX_TRAILER_BYTES = 7 * KIB
"""gRPC has a soft limit of 8 KiB for all trailers."""
