"""Every setting of a directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from npucall.membership import DIRECTORY_PORT
from npucall_server.settings.expert import expert
from npucall_server.settings.listener import ListenerSettings, read_as
from npucall_server.settings.listening import LISTEN, with_commas
from npucall_server.settings.server import ServerSettings


class DirectorySettings(ListenerSettings):
    """The directory of a pool: servers announce themselves there, and clients watch the list.

    It keeps the list in memory, and has it whole again a second after a restart; calls never pass
    through it. One directory is enough; of several, servers and clients name all. Servers name it
    with --announce, clients as pool:directory:HOST:PORT. Give a setting as a flag, as an
    environment variable NPUCALL_DIRECTORY_<NAME>, or as a line of the TOML file that --config
    names; the first of these counts; `npucall-directory settings` prints those that hold.
    npucall-server makes and checks certificates, tokens and tenants: `npucall-server certificates`,
    `npucall-server token new`.
    """

    model_config = SettingsConfigDict(
        env_prefix="NPUCALL_DIRECTORY_", cli_prog_name="npucall-directory"
    )

    listen: Annotated[str, BeforeValidator(with_commas)] = Field(
        f"127.0.0.1:{DIRECTORY_PORT}", description=LISTEN
    )
    max_connections: int = expert(
        4096,
        ge=1,
        description="Connections that may be open, one for each server and each client; the "
        "directory closes any more at once. Never more than the process may have open files, less "
        "a few.",
    )

    @classmethod
    def without_ignored(cls, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """One file can hold the tenants of servers and directory: those of servers count there."""
        kept, warnings = super().without_ignored(given)
        others = kept.keys() & (ServerSettings.model_fields.keys() - cls.model_fields.keys())
        warnings += [
            f"{name}: expected a setting of a directory, found one of npucall-server; it has no "
            "effect here"
            for name in sorted(others)
        ]
        return {name: value for name, value in kept.items() if name not in others}, warnings


def read(arguments: Sequence[str]) -> DirectorySettings:
    """The settings that hold with these arguments of the command line.

    Raises ValueError, a line for each fault.
    """
    return read_as(DirectorySettings, arguments)
