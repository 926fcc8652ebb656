"""What a call has beside its message: the metadata of gRPC, or of a frame. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from npucall.wire.headers import join_metadata
from npucall.wire.status import AUTHORIZATION, REQUEST_ID, RESERVATION, SESSION, TRACEPARENT
from npucall_client.sending import tracing
from npucall_client.sending.reservations import keys_of

if TYPE_CHECKING:
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.senders import Metadata

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Beside:
    """Of the calls to one server. ``waits``: whether it is no member of a pool."""

    def __init__(self, target: str, *, waits: bool) -> None:
        self._target, self._waits = target, waits
        self._spans = tracing.spans()

    def metadata(self, attempts: Attempts) -> Metadata:
        """The metadata of a call, or of a stream, over gRPC.

        Plain metadata, since gRPC's own call credentials cost a call 360 us [src:grpc-credentials].
        """
        pairs = self._pairs(attempts, "grpc")
        if attempts.sent:
            pairs = {AUTHORIZATION: attempts.sent, **pairs}
        return tuple(pairs.items()) or None

    def framed(self, attempts: Attempts) -> bytes:
        """The metadata of a frame."""
        pairs = self._pairs(attempts, "frames")
        return join_metadata(pairs) if pairs else b""

    def _pairs(self, attempts: Attempts, carrier: str) -> Mapping[str, str]:
        """All but the credential. The span of the call hears how it travels."""
        request, spans = attempts.request, self._spans
        is_of_session = request.session or request.home is not None
        if not (request.request_id or request.reservation or is_of_session or spans is not None):
            return _NOTHING
        pairs = {}
        if request.request_id:
            pairs[REQUEST_ID] = request.request_id
        if request.reservation and (key := self._key_of(request.reservation)):
            pairs[RESERVATION] = key
        if is_of_session:
            pairs[SESSION] = request.session_id
        if spans is not None:
            spans.travels(carrier)
            if parent := spans.traceparent():
                pairs[TRACEPARENT] = parent
        return pairs

    def _key_of(self, reservation: str) -> str:
        """The key of a reservation; of a pool's reservation the member's own."""
        return reservation if self._waits else keys_of(reservation).get(self._target, "")
