"""Every setting of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from npucall.membership import DIRECTORY_PORT
from npucall_server.front_settings import FrontSettings, read_as
from npucall_server.transport_settings import LISTEN, with_commas

if TYPE_CHECKING:
    from collections.abc import Sequence


class DirectorySettings(FrontSettings):
    """The directory of a pool: servers announce themselves there, clients watch who there is.

    It keeps the table in memory, and has it whole again a second after a restart; calls never pass
    through it. Servers name it by --announce, clients as pool:directory:HOST:PORT. Every setting is
    a flag, an environment variable NPUCALL_DIRECTORY_<NAME>, or a line of the TOML file that
    --config names; the first of these that is there counts. Certificates, tokens and tenants are
    made and checked by npucall-server: `npucall-server certificates`, `npucall-server token new`.
    """

    model_config = SettingsConfigDict(
        env_prefix="NPUCALL_DIRECTORY_", cli_prog_name="npucall-directory"
    )

    listen: Annotated[str, BeforeValidator(with_commas)] = Field(
        f"127.0.0.1:{DIRECTORY_PORT}", description=LISTEN
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="Connections that may be open, one for each server and client; more are closed "
        "at once. As many servers may announce, and as many clients watch. No more than the "
        "process may have files, less a few.",
    )


def read(arguments: Sequence[str]) -> DirectorySettings:
    """The settings that hold with these arguments of the command line.

    Raises ValueError, a line for each fault.
    """
    return read_as(DirectorySettings, arguments)
