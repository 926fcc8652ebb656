"""A server with tenants, in a process of its own, and clients that prove who they are to it."""

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from tests.certificates import Authority

import npucall_client
from npucall.errors import CredentialMissingError
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.testing import running_server

from .every_way import call_every_way
from .labs import addresses, lab_files

pytestmark = [pytest.mark.usefixtures("sender_in_sweeps"), pytest.mark.more]

ONE = np.ones(4, np.float32)
TENANTS = f"""
[tenants.vision]
users = [{os.geteuid()}]
certificates = ["anna"]
"""


class Lab(NamedTuple):
    """What callers have to know."""

    authority: Authority
    token: str
    loopback: str
    tls: str
    mtls: str
    unix: str


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    files = lab_files(folder, f'shared_memory = "{folder}/side"\n{TENANTS}')
    token = files.new_token("vision", "bert")
    listen = f"plain:127.0.0.1:0,tls:127.0.0.1:0,mtls:127.0.0.1:0,unix:{folder}/s"
    with running_server(f"--config={files.config}", listen=listen) as server:
        *tcp, _ = addresses(server)
        yield Lab(files.authority, token, *tcp, f"unix:{folder}/s")


def test_a_user_of_the_host_is_known_without_a_setting(lab: Lab) -> None:
    for target in lab.loopback, lab.unix:
        with npucall_client.connect(target) as client:
            caller = call_every_way(client)
        assert (caller.tenant, caller.known_by) == ("vision", pb.KNOWN_BY_LOCAL_USER)


def test_memory_is_shared_with_who_asked_for_it(lab: Lab) -> None:
    for token in lab.token, None:  # None: as a user of the host
        with npucall_client.connect(lab.unix, token=token) as client, client.shared(4096) as memory:
            array = memory.array(ONE)
            client.run("aclnnL1LossBackward", array, self=array, target=array)
            assert memory.shared


def test_over_tls_a_token_or_a_certificate_says_who_calls_and_nobody_else_is_let_in(
    lab: Lab,
) -> None:
    pair = lab.authority.client("anna")
    certificate = {"certificate": pair.certificate, "key": pair.key}
    for target, given, name, known_by in (
        (lab.tls, {"token": lab.token}, "bert", pb.KNOWN_BY_TOKEN),
        (lab.mtls, certificate, "anna", pb.KNOWN_BY_CERTIFICATE),
    ):
        with npucall_client.connect(target, **{"ca": lab.authority.ca, **given}) as client:
            caller = call_every_way(client)
        assert (caller.tenant, caller.name, caller.known_by) == ("vision", name, known_by)
    with pytest.raises(CredentialMissingError):
        npucall_client.connect(lab.tls, ca=lab.authority.ca, shared_memory_socket="/nowhere")
