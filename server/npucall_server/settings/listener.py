"""Settings that every server of this package has, and where they are read from.

From the command line, the environment, a TOML file, in this order. Behind them come variables
NPUCALL_DEFAULT_<NAME>, by which a unit of systemd or an image says what holds unless somebody says
something else.
"""

from __future__ import annotations

import argparse
import json
import os
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from npucall.environment import variables
from npucall.texts import missing_extra
from npucall_server.settings.access import AccessSettings
from npucall_server.settings.expert import expert, formatter_of
from npucall_server.settings.faults import sentences
from npucall_server.settings.issuers import is_url
from npucall_server.settings.limits import PeerSettings
from npucall_server.settings.listening import TransportSettings
from npucall_server.settings.watching import MetricsSettings

S = TypeVar("S", bound="ListenerSettings")

_ALL = "--help-all"


class _CommandSettings(BaseModel):
    """Where the settings are, where the process says that it answers, and what it logs."""

    config: Path | None = Field(
        None, description="TOML file of settings. Paths in it count from the file's folder."
    )
    ready_file: Path | None = expert(
        None,
        description="File into which the server writes its address as soon as it answers: of "
        "several addresses the first, or the one of --advertise. Clients of a pool can read a "
        "folder of such files.",
    )
    log_calls: Literal["all", "errors", "slow"] = Field(
        "slow",
        description="Which calls get a log line; slow: errors, and calls that take "
        "a second or longer.",
    )


class ListenerSettings(
    PeerSettings,
    AccessSettings,
    TransportSettings,
    MetricsSettings,
    _CommandSettings,
    BaseSettings,
):
    """Where a server listens, who may call, what it shows, and how it is started."""

    model_config = SettingsConfigDict(
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )
    ways_to_know: ClassVar[str] = "token_hashes, oidc_issuer, or tls_client_ca"
    """The settings that say by what callers are known."""

    _warnings: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _ignore(cls, given: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, dict):
            return read(given)
        kept, warnings = cls.without_ignored(given)
        settings = read(kept)
        settings._warnings.extend(warnings)  # noqa: SLF001  # its own
        return settings

    @classmethod
    def without_ignored(cls, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What counts of what is given, and a sentence on each setting that is passed over."""
        return variables.without_removed(cls.model_config["env_prefix"], given)

    @property
    def warnings(self) -> list[str]:
        """A sentence on each setting and variable that was given and that nothing reads."""
        removed = variables.removed_of(self.model_config["env_prefix"], os.environ)
        return [*self._warnings, *removed, *variables.faults_of(os.environ).values()]

    @model_validator(mode="after")
    def _tenants_can_be_known(self) -> Self:
        if self.tenants and not self.knows_callers:
            raise ValueError(
                "tenants: expected a way to know their callers, found none; set "
                f"{self.ways_to_know}"
            )
        if self.tenants and self.tls_client_ca is not None and find_spec("cryptography") is None:
            raise ValueError(missing_extra("tls_client_ca", "npucall-server", "auth"))
        return self

    @property
    def knows_callers(self) -> bool:
        """Whether every caller has to be known, and there is a way to know some."""
        known = self.knows_tokens or self.tls_client_ca is not None or self.knows_local_users
        return bool(self.tenants) and known

    @property
    def knows_local_users(self) -> bool:
        """Whether users of this host are known."""
        return False

    @property
    def has_reflection(self) -> bool:
        """Whether clients may ask for the services' descriptions."""
        return self.is_on_loopback if self.reflection is None else self.reflection

    def as_toml(self) -> str:
        """The settings as a TOML file that ``--config`` reads; what is not set is left out."""
        values = self.model_dump(mode="json", exclude={"config"}, exclude_none=True, by_alias=True)
        for name, value in values.items():
            if isinstance(value, str) and _names_a_file(type(self), name, value):
                values[name] = str(Path(value).absolute())  # the file may lie anywhere
        tenants = values.pop("tenants")
        tables = (f"\n[tenants.{json.dumps(name)}]\n{_lines(tenants[name])}" for name in tenants)
        return _lines(values) + "".join(tables)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, the file that one of these names, defaults of who starts it."""
        del dotenv_settings, file_secret_settings
        prefix = f"{settings_cls.model_config.get('env_prefix')}{variables.DEFAULT}"
        sources = init_settings, env_settings, _ConfigFile(settings_cls)
        if not any(name.upper().startswith(prefix) for name in os.environ):
            return sources  # to look for each setting takes a millisecond
        return *sources, EnvSettingsSource(settings_cls, env_prefix=prefix)


def _names_a_file(settings_cls: type[BaseSettings], name: str, value: str) -> bool:
    """Whether this value of a setting is the path of a file."""
    field = settings_cls.model_fields.get(name)
    kind = field.annotation if field is not None else None
    words = [word for part in get_args(kind) for word in get_args(part)]  # such as "off"
    is_path = Path in (kind, *get_args(kind)) and value not in words
    return is_path or (name == "oidc_keys" and not is_url(value))


def _lines(values: dict[str, Any]) -> str:
    """Lines of TOML."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in values.items())


def _value(value: Any) -> str:
    """As TOML spells it: numbers, texts and lists of them as JSON does."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)} = {_value(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


class _ConfigFile(TomlConfigSettingsSource):
    """The TOML file that ``config`` names, once the sources before it have been read."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, toml_file=None)

    def __call__(self) -> dict[str, object]:
        path = self.current_state.get("config")
        try:
            return self._from_the_file(Path(path)) if path else {}
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"config: expected valid TOML in {path}, found: {error}") from error
        except OSError as error:
            raise ValueError(f"config: expected a file that can be read, found: {error}") from error

    def _from_the_file(self, path: Path) -> dict[str, object]:
        """Its settings. A path that does not begin with ``/`` counts from the file's folder."""
        found = self._read_file(path)
        return found | {
            name: str(path.parent / value)
            for name, value in found.items()
            if isinstance(value, str) and _names_a_file(self.settings_cls, name, value)
        }


def read_as(kind: type[S], arguments: Sequence[str]) -> S:
    """The settings of that kind that hold with these arguments of the command line.

    Raises ValueError, a line for each fault.
    """
    help_all = _ALL in arguments
    arguments = ["--help" if each == _ALL else each for each in arguments]
    formatter = (
        argparse.RawDescriptionHelpFormatter if help_all else formatter_of(kind.model_fields)
    )
    source = CliSettingsSource[Any](kind, formatter_class=formatter)
    source.env_ignore_empty = False  # an empty option is a mistake, an empty variable is none
    try:
        removed, kept = _removed_options(kind, arguments)
        return CliApp.run(kind, cli_args=kept, cli_settings_source=source, **removed)
    except (OSError, ValueError) as error:  # pydantic's errors are ValueErrors
        raise ValueError(sentences(error, known=kind.model_fields)) from error


def _removed_options(
    kind: type[ListenerSettings], arguments: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """The values of options that are no longer there, by setting, and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in variables.REMOVED[kind.model_config["env_prefix"]]:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, default=argparse.SUPPRESS)
    removed, kept = parser.parse_known_args(arguments)
    return vars(removed), kept


def quiet_grpc() -> None:
    """Has gRPC's own log say nothing below an error, unless the environment wants it.

    It writes to standard error a line for each handshake that fails, whoever tries.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
