"""What can go wrong: one class for each reason. Server and client raise the same classes.

Every class names its gRPC status code, and says whether the same call may be repeated. Where Python
has a class for such an error (``ValueError``, ``TimeoutError``), that is a base too.
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
TILING_ERROR = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR


class Repeat(Enum):
    """Whether the same call may be sent again, unchanged. A handle can be filled only once."""

    NEVER = "never"
    """The same call fails again."""
    HERE = "here"
    """This server, or the one that replaces it, can answer the call soon. The client pauses and
    repeats it, as long as its timeout allows. Another server may answer it at once."""
    FEW_TIMES = "here, unless the call ends its servers"
    """As here. But this very call may have ended the server or broken its device. After three
    processes that ended under it, the client does not send it again (PoisonedCallError), also if
    another call was the cause each time."""
    LATER = "after RetryInfo's delay"
    """This server may answer it then. The client waits for that delay and repeats the call, as long
    as its timeout allows. With ``wait=False`` the caller is told at once. Another server may answer
    it at once."""
    LATER_HERE = "after RetryInfo's delay, and here alone"
    """As after RetryInfo's delay, but the client asks no other server: the limit is the caller's
    own."""
    ELSEWHERE = "elsewhere"
    """Another server may answer it. Nobody knows when this one can, so the client does not wait: it
    raises the error."""


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
        """The parameters to blame, the most likely one first."""
        self.aclnn_status = aclnn_status
        """The status that CANN's first phase returns for this fault, or None."""
        self.retry_after = retry_after
        """Seconds after which the same call may succeed, or None."""
        self.details = details
        """Facts as strings: operator, variant, phase, soc, limit, setting, quota, request_id,
        driver_message; each only if it is known."""

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


class OperatorUnknownError(NpucallError, LookupError):
    """No operator has this name, or it has no such variant. ``npucall operators`` lists them."""

    code, reason = StatusCode.NOT_FOUND, "OPERATOR_UNKNOWN"


class OperatorUnavailableError(NpucallError):
    """The operator is known, but this server cannot run it. Use another server."""

    code, reason = StatusCode.FAILED_PRECONDITION, "OPERATOR_UNAVAILABLE"
    repeat = Repeat.ELSEWHERE


class VariantUnavailableError(OperatorUnavailableError):
    """The variant is known, but this device has another one. Use that one, or another server."""

    reason = "VARIANT_UNAVAILABLE"


class MessageError(NpucallError, ValueError):
    """The server cannot read the request, or it breaks the contract. Correct the client."""

    code, reason = StatusCode.INVALID_ARGUMENT, "MESSAGE_MALFORMED"


class TensorLayoutError(NpucallError, ValueError):
    """The shape, strides, offset, storage and number of bytes of a tensor contradict each other."""

    code, reason = StatusCode.INVALID_ARGUMENT, "TENSOR_LAYOUT"


class ArgumentUnknownError(NpucallError, TypeError):
    """The operator has no parameter of this name."""

    code, reason = StatusCode.INVALID_ARGUMENT, "ARGUMENT_UNKNOWN"


class ArgumentMissingError(NpucallError, TypeError):
    """A required argument is missing: the C function would get a null pointer."""

    code, reason = StatusCode.INVALID_ARGUMENT, "ARGUMENT_MISSING"


class ArgumentError(NpucallError, ValueError):
    """An argument breaks a rule of the operator. The subclasses say which kind of rule."""

    code, reason = StatusCode.INVALID_ARGUMENT, "ARGUMENT_INVALID"


class DTypeError(ArgumentError, TypeError):
    """The operator, the product or the protocol does not accept this element type."""

    reason = "DTYPE_UNSUPPORTED"


class ShapeError(ArgumentError):
    """The shapes do not fit the operator, or do not fit each other."""

    reason = "SHAPE_MISMATCH"


class FormatError(ArgumentError):
    """The operator does not accept this tensor format."""

    reason = "FORMAT_UNSUPPORTED"


class AttributeValueError(ArgumentError):
    """The attribute cannot have this value."""

    reason = "ATTRIBUTE_INVALID"


class SettingError(ArgumentError):
    """Made by the client: a target, a timeout or another setting that cannot be. Correct it."""

    reason = "SETTING_INVALID"


class SharedMemoryError(NpucallError):
    """The server does not share this memory, or shares none. Send the bytes instead."""

    code, reason = StatusCode.FAILED_PRECONDITION, "SHARED_MEMORY"


class SessionUnknownError(NpucallError):
    """This caller has no session with this id, or the call names no session. Open a session."""

    code, reason = StatusCode.NOT_FOUND, "SESSION_UNKNOWN"


class SessionExpiredError(NpucallError):
    """The lease of the session has ended. Open another session, and fill its handles again."""

    code, reason = StatusCode.FAILED_PRECONDITION, "SESSION_EXPIRED"


class WrongServerError(NpucallError):
    """The session belongs to another server. Send the call to that server."""

    code, reason = StatusCode.FAILED_PRECONDITION, "WRONG_SERVER"


class HandleLostError(NpucallError):
    """The server has restarted and lost its handles. Open a session and fill them again."""

    code, reason = StatusCode.ABORTED, "HANDLE_LOST"


class HandleEmptyError(NpucallError):
    """The handle is empty: nothing has filled it, or the call that should fill it failed."""

    code, reason = StatusCode.FAILED_PRECONDITION, "HANDLE_EMPTY"


class HandleReleasedError(NpucallError):
    """The handle was released. Release a handle only when no later call needs it."""

    code, reason = StatusCode.FAILED_PRECONDITION, "HANDLE_RELEASED"


class HandleExistsError(NpucallError):
    """Another call fills this handle, or has filled it. Use another id."""

    code, reason = StatusCode.ALREADY_EXISTS, "HANDLE_EXISTS"


class HandleMemoryError(NpucallError, MemoryError):
    """The session, its tenant or the server has no room for the handle. Release handles."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "HANDLE_MEMORY"


class MissingError(NpucallError):
    """The server does not have the bytes of some digests. Upload them, or send them in the call."""

    code, reason = StatusCode.NOT_FOUND, "MISSING"


class DigestMismatchError(NpucallError):
    """The bytes do not have the digest that the request names. Compute it from these bytes."""

    code, reason = StatusCode.INVALID_ARGUMENT, "DIGEST_MISMATCH"


class TooLargeError(NpucallError):
    """The call exceeds a limit of the server. Split it, or raise the setting in the error."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE"


class QueueFullError(NpucallError):
    """The server is full at the moment. Repeat the call after ``retry_after`` seconds."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"
    repeat = Repeat.LATER


class QuotaError(NpucallError):
    """The caller's own tenant has used up a quota. Wait, or ask the server's administrator."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "QUOTA"
    repeat = Repeat.LATER_HERE


class UnauthenticatedError(NpucallError, PermissionError):
    """The server does not know the caller. The subclasses say what is wrong with the credential."""

    code, reason = StatusCode.UNAUTHENTICATED, "CREDENTIAL"


class CredentialMissingError(UnauthenticatedError):
    """The call carries no credential. Give the client a token or a certificate."""

    reason = "CREDENTIAL_MISSING"


class CredentialInvalidError(UnauthenticatedError):
    """This server does not accept the credential: it is forged, revoked, or for another server."""

    reason = "CREDENTIAL_INVALID"


class CredentialExpiredError(UnauthenticatedError):
    """The credential has expired. Get a new one."""

    reason = "CREDENTIAL_EXPIRED"


class TenantUnknownError(UnauthenticatedError):
    """The credential is valid, but belongs to no tenant of this server."""

    reason = "TENANT_UNKNOWN"


class PermissionDeniedError(NpucallError, PermissionError):
    """The caller's role does not allow this. The settings of the server's tenants give roles."""

    code, reason = StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"


class ReservedError(NpucallError):
    """Somebody else has reserved the device; or your own reservation has ended: reserve again."""

    code, reason = StatusCode.FAILED_PRECONDITION, "RESERVED"
    repeat = Repeat.LATER


class DeadlineError(NpucallError, TimeoutError):
    """The call took longer than its deadline, or than the server's call_timeout."""

    code, reason = StatusCode.DEADLINE_EXCEEDED, "DEADLINE"


class StalledError(DeadlineError):
    """No byte of the call arrived within the server's peer_timeout. Repeat the call."""

    reason = "STALLED"
    repeat = Repeat.HERE


class CancelledError(NpucallError):
    """The caller cancelled the call, or disconnected."""

    code, reason = StatusCode.CANCELLED, "CANCELLED"


class DrainingError(NpucallError):
    """The server is shutting down and takes no new calls. Repeat the call."""

    code, reason = StatusCode.UNAVAILABLE, "DRAINING"
    repeat = Repeat.HERE


class BusyError(NpucallError):
    """The server has no memory free to read the request now. Repeat the call."""

    code, reason = StatusCode.UNAVAILABLE, "BUSY"
    repeat = Repeat.HERE


class DeviceError(NpucallError):
    """The device failed on this call. Do not repeat it unchanged."""

    code, reason = StatusCode.INTERNAL, "DEVICE_ERROR"


class OutOfMemoryError(DeviceError, MemoryError):
    """The device has too little free memory for this call. Make it smaller, or repeat it later."""

    code, reason = StatusCode.RESOURCE_EXHAUSTED, "DEVICE_MEMORY"
    repeat = Repeat.ELSEWHERE


class DeviceLostError(DeviceError):
    """Another call broke the device; the server restarts. Repeat the call."""

    code, reason = StatusCode.UNAVAILABLE, "DEVICE_LOST"
    repeat = Repeat.FEW_TIMES


class InternalError(NpucallError):
    """A bug in the server. Its log has the traceback, under the request id."""

    code, reason = StatusCode.INTERNAL, "INTERNAL"


class ProtocolError(InternalError):
    """Made by the client: an answer is no answer to the call. Another server may give one."""

    reason = "PROTOCOL"
    repeat = Repeat.ELSEWHERE


class ServerUnreachableError(NpucallError, ConnectionError):
    """The client found no server at the target. Start the server, or correct the target."""

    code, reason = StatusCode.UNAVAILABLE, "SERVER_UNREACHABLE"
    repeat = Repeat.HERE


class ConnectionLostError(ServerUnreachableError):
    """The client lost the connection while the call ran. Repeat the call."""

    reason = "CONNECTION_LOST"
    repeat = Repeat.FEW_TIMES


class NoMemberError(NpucallError):
    """No member of the pool has the SoC, product or labels that you ask for. Ask for others."""

    code, reason = StatusCode.FAILED_PRECONDITION, "NO_MEMBER"
    repeat = Repeat.ELSEWHERE


class NotRecordedError(NpucallError, LookupError):
    """A file of recorded calls has no answer to this one. Record it again (``npucall record``)."""

    code, reason = StatusCode.NOT_FOUND, "NOT_RECORDED"


class MixedPoolError(NpucallError):
    """The pool has several SoCs, and their results differ. Say which one you want (``soc``)."""

    code, reason = StatusCode.FAILED_PRECONDITION, "MIXED_POOL"


class PoisonedCallError(NpucallError):
    """Three servers that had this call ended, so the client sends it no more. Do not repeat it."""

    code, reason = StatusCode.ABORTED, "POISONED_CALL"


def _family(base: type[NpucallError]) -> list[type[NpucallError]]:
    return [base] + [error for child in base.__subclasses__() for error in _family(child)]


BY_REASON = {error.reason: error for error in _family(NpucallError)}
"""Every class by its reason."""
