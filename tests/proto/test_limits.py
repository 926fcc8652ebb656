"""npucall.limits: what the proto tells clients in other languages is what the code does."""

from pathlib import Path

from tests.rows import each

from npucall import limits

PROTOS = Path(__file__).parents[2] / "proto/npucall/v1"
COMMENTS = " ".join(
    line.strip().removeprefix("//").strip()
    for path in sorted(PROTOS.glob("*.proto"))
    for line in path.read_text().splitlines()
)
STATED = {
    "MAX_CALL_BYTES": "without data. Small: at most {}",
    "MAX_RANK": "each 0 or more, at most {} entries",
    "MAX_FIELDS": "one with more than {} fields",
    "MAX_NESTED_FIELDS": "or {} at any depth",
    "MAX_DEPTH": "or more than {} levels",
    "MAX_OVERHEAD_BYTES": "or more than {} without the data of its storages",
    "ALIGNMENT": "for `data` at a multiple of {}.",
    "MAX_CHUNK_BYTES": "more than {} give MESSAGE_MALFORMED",
    "CHUNK_BYTES": "then {} are a good length",
    "INLINE_BYTES": "if together they have at most {}",
    "MAX_ID_GAPS": "ends if its ids leave more than {} gaps",
    "REGION_ID_BYTES": "The id that the server gave with the memory, {} bytes",
    "MAX_REQUEST_ID_CHARACTERS": "`npucall-request-id`, up to {} printable ASCII characters",
    "MAX_TEXT_BYTES": "`driver_message` (at most {})",
    "HANDLE_BYTES": "The id that the caller chose, {} random bytes",
    "DIGEST_BYTES": "SHA-256 of the bytes, {} bytes of it",
    "MAX_ENTRIES": "At least 1, at most {} of them",
    "MAX_SESSION_CHARACTERS": "at most {} printable ASCII characters",
    "MAX_PROGRAM_OVERHEAD_BYTES": "Together they may have {} without the data",
    "MAX_MEMBER_BYTES": "A beat has at most {}.",
    "MAX_LABELS": "At most {}; a name",
    "MAX_LABEL_NAME_BYTES": "a name has up to {} of a-z",
    "MAX_LABEL_VALUE_BYTES": "a value up to {} bytes",
}
"""Each limit that a caller has to know, and where the proto says it."""
OUR_OWN = {
    "MAX_TENSOR_BYTES", "CACHED_CALL_BYTES", "CACHED_CALLS", "CACHED_CALL_VALUES",
    "KNOWN_CALLS_BYTES",
    "MAX_MESSAGE_BYTES", "MAX_NAME_BYTES", "MAX_TRACEBACK_CHARACTERS",
    "MAX_ANSWER_BYTES", "FRAME_BYTES", "MAX_STORAGE_INDEX", "MAX_REGIONS",
    "MAX_SIDE_ANSWER_BYTES", "MAX_TRAILER_BYTES", "MAX_HANDLES", "MAX_PAST_HANDLES",
    "MAX_PROGRAM_STEPS",
    "FRAMES_PER_MESSAGE", "MAX_MEMBERS", "MAX_MEMBERS_OF_CALLER",
}  # fmt: skip
"""What no caller has to know, or the types of the fields say."""


@each("name", STATED)
def test_the_proto_states_the_limit(name: str) -> None:
    assert STATED[name].format(spelled(name)) in COMMENTS


def test_every_limit_is_stated_or_our_own() -> None:
    names = {name for name in vars(limits) if name.isupper()} - {"KIB", "MIB", "GIB"}
    assert names == STATED.keys() | OUR_OWN


def spelled(name: str) -> str:
    value: int = getattr(limits, name)
    if name.endswith("_BYTES") and value >= limits.KIB:
        unit = "MiB" if value >= limits.MIB else "KiB"
        return f"{value // (limits.MIB if unit == 'MiB' else limits.KIB)} {unit}"
    return f"{value:,}"
