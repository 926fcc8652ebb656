"""What can go wrong: one class for each reason, raised alike by server and client.

Every class says which gRPC status it travels with, and whether the same call may be repeated.
``wire.status`` turns errors into ``google.rpc.Status`` and back.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import ClassVar

from grpc import StatusCode


class AclnnStatus(IntEnum):
    """The aclnn statuses that have a name of their own."""

    ACLNN_SUCCESS = 0
    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER = 561000
    ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001
    ACLNN_ERR_INNER_TILING_ERROR = 561002
    ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003
    ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101
    ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = 561102
    ACLNN_ERR_INNER_NULLPTR = 561103
    ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE = 561104
    ACLNN_ERR_INNER_KEY_CONFLICT = 561105
    ACLNN_ERR_INNER_INVALID_IMPL_MODE = 561106
    ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107


PARAM_NULLPTR = AclnnStatus.ACLNN_ERR_PARAM_NULLPTR
PARAM_INVALID = AclnnStatus.ACLNN_ERR_PARAM_INVALID


class Repeat(Enum):
    """Whether the same call may be sent again, unchanged. Handles are filled once."""

    NEVER = "never"
    """It fails again."""
    HERE = "here"
    """This server, or the one that takes its place, answers it soon: the client repeats it, after a
    pause, as long as its timeout allows. Another server may answer it at once."""
    FEW_TIMES = "here, unless the call ends its servers"
    """As here, but this very call may be what ended the server or broke its device: where two
    servers ended that had begun it, of which the second ran nothing else, it is not sent again
    (PoisonedCallError)."""
    LATER = "after RetryInfo's delay"
    """This server may answer it then. The client waits for that delay and repeats the call, as long
    as its timeout allows. With ``wait=False`` the caller is told at once. Another server may answer
    it at once."""
    LATER_HERE = "after RetryInfo's delay, and here alone"
    """As LATER, but no other server is asked: the limit is the caller's own."""
    ELSEWHERE = "elsewhere"
    """Another server may answer it. Of this one nobody knows when: the caller is told."""


class NpucallError(Exception):
    """Base of all errors of npucall.

    ``str(error)`` is one sentence for a person; the attributes are for programs.
    """

    code: ClassVar[StatusCode] = StatusCode.UNKNOWN
    reason: ClassVar[str] = "UNKNOWN"
    repeat: ClassVar[Repeat] = Repeat.NEVER

    def __init__(
        self,
        message: str,
        *,
        parameter: str | tuple[str, ...] = (),
        aclnn_status: int | None = None,
        retry_after: float | None = None,
        **details: str,
    ) -> None:
        super().__init__(message)
        self.parameters = (parameter,) if isinstance(parameter, str) else parameter
        """The parameters to blame, the first one in doubt."""
        self.aclnn_status = aclnn_status
        """The number that CANN's first phase gives for this, or None."""
        self.retry_after = retry_after
        """Seconds after which the same call may succeed, or None."""
        self.details = details
        """Facts as strings: operator, variant, phase, soc, limit, setting, quota, request_id,
        driver_message; each where it is known."""

    @property
    def parameter(self) -> str | None:
        """The parameter to blame, or None."""
        return self.parameters[0] if self.parameters else None

    @property
    def aclnn_name(self) -> str | None:
        """Name of the aclnn status, or None."""
        try:
            return None if self.aclnn_status is None else AclnnStatus(self.aclnn_status).name
        except ValueError:
            return None


class OperatorUnknownError(NpucallError):
    """No operator has that name, or none of that name has that variant. See ListOperators."""

    code, reason = StatusCode.NOT_FOUND, "OPERATOR_UNKNOWN"


class OperatorUnavailableError(NpucallError):
    """The operator is known, but this server cannot run it. Use another server."""

    code, reason = StatusCode.FAILED_PRECONDITION, "OPERATOR_UNAVAILABLE"
    repeat = Repeat.ELSEWHERE


class VariantUnavailableError(OperatorUnavailableError):
    """The variant is known, but the device has another one. Use that, or another server."""

    reason = "VARIANT_UNAVAILABLE"


class MessageError(NpucallError):
    """The request cannot be read, or breaks the structure that the contract describes."""

    code, reason = StatusCode.INVALID_ARGUMENT, "MESSAGE_MALFORMED"


class TensorLayoutError(NpucallError):
    """Shape, strides, offset, storage and number of bytes of a tensor do not fit together."""

    code, reason = StatusCode.INVALID_ARGUMENT, "TENSOR_LAYOUT"


class ArgumentUnknownError(NpucallError):
    """The operator has no parameter of that name."""

    code, reason = StatusCode.INVALID_ARGUMENT, "ARGUMENT_UNKNOWN"


class ArgumentMissingError(NpucallError):
    """A required argument is absent: a null pointer for the C function."""

    code, reason = StatusCode.INVALID_ARGUMENT, "ARGUMENT_MISSING"


class ArgumentError(NpucallError):
    """An argument breaks a rule of the operator; its subclasses say which kind of rule."""

    code, reason = StatusCode.INVALID_ARGUMENT, "ARGUMENT_INVALID"


class DTypeError(ArgumentError):
    """An element type that the operator, the product or the wire does not take."""

    reason = "DTYPE_UNSUPPORTED"


class ShapeError(ArgumentError):
    """Shapes that do not fit the operator or each other."""

    reason = "SHAPE_MISMATCH"


class FormatError(ArgumentError):
    """A tensor format that the operator refuses."""

    reason = "FORMAT_UNSUPPORTED"


class AttributeValueError(ArgumentError):
    """A value that an attribute cannot have."""

    reason = "ATTRIBUTE_INVALID"


class SettingError(ArgumentError, ValueError):
    """Made by the client: a target, a timeout or another setting that cannot be. Correct it."""

    reason = "SETTING_INVALID"


class SharedMemoryError(NpucallError):
    """The server shares no such memory, or none at all. Send the bytes."""

    code, reason = StatusCode.FAILED_PRECONDITION, "SHARED_MEMORY"


class SessionUnknownError(NpucallError):
    """No session of this caller has that id, or the call names none. Open a session."""

    code, reason = StatusCode.NOT_FOUND, "SESSION_UNKNOWN"


class SessionExpiredError(NpucallError):
    """The lease of the session has ended. Open another session, and fill its handles anew."""

    code, reason = StatusCode.FAILED_PRECONDITION, "SESSION_EXPIRED"


class WrongServerError(NpucallError):
    """Another server opened the session. Send the call to that server."""

    code, reason = StatusCode.FAILED_PRECONDITION, "WRONG_SERVER"


class HandleLostError(NpucallError):
    """The server was started again since, and its handles are gone. Fill them anew in a session."""

    code, reason = StatusCode.ABORTED, "HANDLE_LOST"


class HandleEmptyError(NpucallError):
    """Nothing has filled the handle, or what was to fill it failed. Fill it."""

    code, reason = StatusCode.FAILED_PRECONDITION, "HANDLE_EMPTY"


class HandleReleasedError(NpucallError):
    """The handle was released. Keep what you still need."""

    code, reason = StatusCode.FAILED_PRECONDITION, "HANDLE_RELEASED"


class HandleExistsError(NpucallError):
    """Something else fills the handle, or has filled it. Use another id."""

    code, reason = StatusCode.ALREADY_EXISTS, "HANDLE_EXISTS"


class HandleMemoryError(NpucallError):
    """The session, its tenant or the server has no room for the handle. Release handles."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "HANDLE_MEMORY"


class MissingError(NpucallError):
    """The server does not have the bytes of some digests. Upload them, or send the bytes."""

    code, reason = StatusCode.NOT_FOUND, "MISSING"


class DigestMismatchError(NpucallError):
    """The bytes that came have another digest than was said. Compute the digest of these bytes."""

    code, reason = StatusCode.INVALID_ARGUMENT, "DIGEST_MISMATCH"


class TooLargeError(NpucallError):
    """More than a limit of the server will ever allow. Split the call, or raise the setting."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE"


class QueueFullError(NpucallError):
    """The server is busy. Repeat the call after ``retry_after`` seconds."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"
    repeat = Repeat.LATER


class QuotaError(NpucallError):
    """A quota of the caller's own tenant is spent. Wait, or ask who administrates the server."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "QUOTA"
    repeat = Repeat.LATER_HERE


class UnauthenticatedError(NpucallError):
    """The server does not know who calls. Its subclasses say what is wrong with the credential."""

    code, reason = StatusCode.UNAUTHENTICATED, "CREDENTIAL"


class CredentialMissingError(UnauthenticatedError):
    """The call carries no credential. Give the client a token or a certificate."""

    reason = "CREDENTIAL_MISSING"


class CredentialInvalidError(UnauthenticatedError):
    """The credential is not one that this server accepts: forged, revoked, or for somebody else."""

    reason = "CREDENTIAL_INVALID"


class CredentialExpiredError(UnauthenticatedError):
    """The credential was good, and its time has ended. Get a new one."""

    reason = "CREDENTIAL_EXPIRED"


class TenantUnknownError(UnauthenticatedError):
    """The credential is good, and belongs to no tenant of this server."""

    reason = "TENANT_UNKNOWN"


class PermissionDeniedError(NpucallError):
    """The server knows the caller, whose role does not allow this."""

    code, reason = StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"


class ReservedError(NpucallError):
    """Somebody else has reserved the device, or one's own reservation has ended. Wait for it."""

    code, reason = StatusCode.FAILED_PRECONDITION, "RESERVED"
    repeat = Repeat.ELSEWHERE


class DeadlineError(NpucallError):
    """The deadline of the call, or the server's own limit on a call's time, ended first."""

    code, reason = StatusCode.DEADLINE_EXCEEDED, "DEADLINE"


class StalledError(DeadlineError):
    """No byte of the call came for as long as the server waits for one. Repeat the call."""

    reason = "STALLED"
    repeat = Repeat.HERE


class CancelledError(NpucallError):
    """The caller cancelled the call, or went away."""

    code, reason = StatusCode.CANCELLED, "CANCELLED"


class DrainingError(NpucallError):
    """The server is going down and takes no new calls. Repeat the call."""

    code, reason = StatusCode.UNAVAILABLE, "DRAINING"
    repeat = Repeat.HERE


class BusyError(NpucallError):
    """The server has no room for the request, and has read nothing of it. Repeat the call."""

    code, reason = StatusCode.UNAVAILABLE, "BUSY"
    repeat = Repeat.HERE


class DeviceError(NpucallError):
    """The device failed on this call. Do not repeat it unchanged."""

    code, reason = StatusCode.INTERNAL, "DEVICE_ERROR"


class OutOfMemoryError(DeviceError):
    """The device has no memory for this call now. Make it smaller, or repeat it later."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "DEVICE_MEMORY"
    repeat = Repeat.ELSEWHERE


class DeviceLostError(DeviceError):
    """Another call broke the device; the server restarts. Repeat the call."""

    code, reason = StatusCode.UNAVAILABLE, "DEVICE_LOST"
    repeat = Repeat.FEW_TIMES


class InternalError(NpucallError):
    """A bug. The server's log has the traceback beside the request id."""

    code, reason = StatusCode.INTERNAL, "INTERNAL"


class ServerUnreachableError(NpucallError):
    """Made by the client: nothing answers at the target. Start the server, or mend the target."""

    code, reason = StatusCode.UNAVAILABLE, "SERVER_UNREACHABLE"
    repeat = Repeat.HERE


class ConnectionLostError(ServerUnreachableError):
    """Made by the client: the connection broke while the call was under way. Repeat the call."""

    reason = "CONNECTION_LOST"
    repeat = Repeat.FEW_TIMES


class NoMemberError(NpucallError):
    """Made by the client: no member of the pool is what the call wants. Mend the wish."""

    code, reason = StatusCode.FAILED_PRECONDITION, "NO_MEMBER"
    repeat = Repeat.ELSEWHERE


class MixedPoolError(NpucallError):
    """Made by the client: members of several SoCs, whose results differ. Say which (``soc``)."""

    code, reason = StatusCode.FAILED_PRECONDITION, "MIXED_POOL"


class PoisonedCallError(NpucallError):
    """Made by the client: the call ended the server each time that it ran. Do not repeat it."""

    code, reason = StatusCode.ABORTED, "POISONED_CALL"


def _family(base: type[NpucallError]) -> list[type[NpucallError]]:
    return [base] + [error for child in base.__subclasses__() for error in _family(child)]


BY_REASON = {error.reason: error for error in _family(NpucallError)}
"""Every class by its reason."""
