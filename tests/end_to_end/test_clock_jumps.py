"""The server's clock jumps by hours, days and a year: nothing that was promised for a time is lost.

What has an end of its own on the calendar (tokens, certificates) ends by the new clock, and counts
again when the clock is set back. What was promised from now on (leases, reservations, deadlines)
counts by a clock that does not jump.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import npucall
from npucall.errors import CredentialExpiredError, NpucallError, ReservedError
from npucall_client.testing import ServerProcess, running_server

from . import wire
from .labs import addresses, lab_files

pytestmark = pytest.mark.long

LIBRARIES = list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
"""Of Debian's package faketime."""
ONE = np.ones(4, np.float32)
HOUR, DAY = 3600, 86400
DAYS = 30
"""For which credentials are good."""
JUMPS = 3 * HOUR, -5 * HOUR, 2 * DAY, -9 * DAY, 20 * DAY


class Lab:
    """A server with a tenant, TLS, and a clock that a file moves."""

    def __init__(self, folder: Path) -> None:
        self._clock = folder / "clock"
        self.files = lab_files(folder, '[tenants.vision]\ncertificates = ["anna"]')
        self.token = self.files.new_token("vision", "bert", "--role=bench", f"--days={DAYS}")
        self.jump(0)

    def jump(self, seconds: float) -> None:
        """From now on the server's clock is that far from the true one."""
        draft = self._clock.with_suffix(".part")
        draft.write_text(f"{seconds:+.0f}\n")
        draft.replace(self._clock)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed (Debian's package faketime)")
    return Lab(tmp_path)


@pytest.fixture
def server(lab: Lab) -> Iterator[ServerProcess]:
    listen = "tls:127.0.0.1:0,mtls:127.0.0.1:0"
    with running_server(
        f"--config={lab.files.config}", listen=listen, environment=lab.environment
    ) as it:
        yield it
        assert '"traceback"' not in it.log.read_text()


@pytest.fixture
def connect(lab: Lab, server: ServerProcess) -> Iterator[Callable[[str], npucall.Client]]:
    """Opens a client that is known by a token or by a certificate."""
    tls, mtls = addresses(server)
    own = lab.files.authority.client("anna", datetime.now(UTC) + timedelta(days=DAYS))

    def opened(known_by: str) -> npucall.Client:
        options = npucall.Options(certificate=str(own.certificate), key=str(own.key))
        if known_by == "token":
            return npucall.connect(tls, token=lab.token, ca=lab.files.authority.ca, timeout=20)
        return npucall.connect(mtls, ca=lab.files.authority.ca, timeout=20, options=options)

    with ExitStack() as clients:
        yield lambda known_by: clients.enter_context(opened(known_by))


def run(client: npucall.Client) -> None:
    client.run("L1LossBackward", ONE, ONE, ONE)


def is_expired(client: npucall.Client) -> bool:
    try:
        run(client)
    except CredentialExpiredError:
        return True
    return False


def test_sessions_reservations_and_usage_do_not_see_that_the_clock_jumps(
    lab: Lab, connect: Callable[[str], npucall.Client]
) -> None:
    holder, other = connect("token"), connect("certificate")
    session = holder.session()
    handle = session.put(ONE)
    with holder.reserve(60):
        for jump in JUMPS:
            lab.jump(jump)
            session.run("L1LossBackward", handle, ONE, ONE)
            run(holder)
            with pytest.raises(ReservedError):
                other.options(wait=False).run("L1LossBackward", ONE, ONE, ONE)
    run(other)
    np.testing.assert_array_equal(handle.numpy(), ONE)
    session.close()
    lab.jump(0)
    (mine,) = (line for line in holder.usage().lines if line.operator == "aclnnL1LossBackward")
    assert mine.calls == 2 * len(JUMPS)
    assert not mine.refusals


@pytest.mark.parametrize("known_by", ["token", "certificate"])
def test_a_credential_ends_by_the_clock_and_counts_again_when_it_is_set_back(
    lab: Lab, connect: Callable[[str], npucall.Client], known_by: str
) -> None:
    client = connect(known_by)
    for _ in range(3):
        run(client)
        lab.jump((DAYS + 1) * DAY)
        wire.until(lambda: is_expired(client), "its end has been noticed")
        assert is_expired(client)
        lab.jump(-5 * HOUR)
        run(client)
    lab.jump(0)
    late = connect(known_by)
    run(late)


def test_a_client_that_came_while_the_clock_was_wrong_works_when_it_is_right(
    lab: Lab, connect: Callable[[str], npucall.Client]
) -> None:
    lab.jump((DAYS + 1) * DAY)
    with pytest.raises(NpucallError):
        run(connect("token"))
    lab.jump(0)
    run(connect("token"))
