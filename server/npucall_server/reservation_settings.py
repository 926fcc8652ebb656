"""Settings of reservations of the device."""

from __future__ import annotations

from pydantic import BaseModel, Field, SecretStr

_LONGEST_SECONDS = 7 * 24 * 3600.0


class ReservationSettings(BaseModel):
    """How long somebody may have the device alone, and what a reservation is known by."""

    max_reservation: float = Field(
        7200.0,
        gt=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Most seconds for which one reservation of the device is granted.",
    )
    reservation_gap: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        le=_LONGEST_SECONDS,
        description="Most seconds that lie between two reservations of one tenant, no more than "
        "the first one lasted; meanwhile others have their turn.",
    )
    reservation_key: SecretStr | None = Field(
        None,
        min_length=16,
        exclude=True,  # --print-settings does not tell it
        description="Secret that keys of reservations are made with, of 16 characters or more, "
        "another one for each server. With it they outlive a restart, and for 30 s after its start "
        "the server grants no new one. Give it in a file or the environment: whoever lists "
        "processes sees a command line. Default: another one at each start, with which "
        "reservations end.",
    )
