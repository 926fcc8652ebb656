"""Settings of reservations of the device."""

from __future__ import annotations

from pydantic import BaseModel, Field, SecretStr

from npucall_server.settings.expert import EXPERT

_LONGEST_SECONDS = 7 * 24 * 3600.0


class ReservationSettings(BaseModel):
    """How long somebody may have the device alone, and what a reservation is known by."""

    max_reservation: float = Field(
        7200.0,
        gt=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        json_schema_extra=EXPERT,
        description="Longest reservation of the device that the server grants, in seconds.",
    )
    reservation_key: SecretStr | None = Field(
        None,
        min_length=16,
        exclude=True,  # `npucall-server settings` does not tell it
        json_schema_extra=EXPERT,
        description="Secret of 16 characters or more from which the server makes the keys of "
        "reservations; give each server another one. With it, reservations survive a restart of "
        "the server, and the server grants no new one in the first 30 s. Put it into a file or "
        "the environment: everybody who can list processes sees a command line. Default: a new "
        "secret at each start, so that a restart ends reservations.",
    )
