"""The files of a lab's server: tenants, tokens, TLS."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Authority

from npucall_client.testing import ServerProcess
from npucall_server.commands.access import run_token


class LabFiles(NamedTuple):
    """Who signs certificates, and what the server reads."""

    authority: Authority
    config: Path

    def new_token(self, tenant: str, name: str, *flags: str) -> str:
        """As its administrator makes one."""
        who = [f"--config={self.config}", f"--tenant={tenant}", f"--name={name}"]
        with redirect_stdout(io.StringIO()) as said:
            assert run_token(["new", *who, *flags]) == 0
        return said.getvalue().split()[0]


def lab_files(folder: Path, tables: str) -> LabFiles:
    """Its settings begin with TLS and the file of tokens; ``tables`` follows them."""
    authority, tokens = Authority(folder), folder / "tokens"
    files = LabFiles(authority, folder / "server.toml")
    pair = authority.server()
    tokens.touch(mode=0o600)
    files.config.write_text(f"""
token_hashes = "{tokens}"
tls_certificate = "{pair.certificate}"
tls_key = "{pair.key}"
tls_client_ca = "{authority.ca}"
{tables}
""")
    return files


def addresses(server: ServerProcess) -> list[str]:
    """Where it listens, in the order of ``--listen``, without what says how."""
    listed = server.log.read_text().partition('"addresses": "')[2].partition('"')[0]
    return [each.partition(":")[2] for each in listed.split(", ")]
