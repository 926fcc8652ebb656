"""The order for a keeper: texts and numbers, as JSON, and nothing that could be code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Order:
    """One server on one host. Paths are paths on that host."""

    name: str
    """Name of the server in the pool, and of its files: letters, digits, and ``.-``."""
    host: str
    """The host's address in Ray. The server listens on it."""
    environment: str
    """Folder of the virtual environment that npucall-server is installed in."""
    program: str
    """A command of that environment."""
    arguments: tuple[str, ...]
    """Its arguments. The keeper replaces ``{host}``, ``{port}``, ``{device}``, ``{number}``,
    ``{index}``, ``{name}``, ``{hostname}`` and ``{folder}`` by the values on its host.
    """
    ports: tuple[int, int]
    """The first and the last port that it may listen on."""
    port: int
    """The port to try first, one of ``ports``."""
    index: int = 0
    """Index of the server among the servers of its kind on the host."""
    device: str = "cpu"
    """The value of the server's ``--device``. ``cann`` means the NPU that Ray gave."""
    set_env: str = ""
    """A shell script that is read before the program starts, such as CANN's set_env.sh."""
    folder: str = ""
    """Folder of locks and logs. Empty: a folder of this user in the system's temporary folder."""
    drain: float = 40.0
    """Seconds that the server gets to end after it was asked to."""
    resource: str = ""
    """The resource of Ray that numbers its device."""
    needs: dict[str, float] = field(default_factory=dict)
    """Resources of Ray that the keeper has while it lives. They also bind it to its host."""

    def as_text(self) -> str:
        """The order as a text, which ``of_text`` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The order in a text of ``as_text``."""
        values = json.loads(text)
        return cls(
            **{
                **values,
                "arguments": tuple(values["arguments"]),
                "ports": tuple(values["ports"]),
            }
        )

    def command(self, found: HostValues) -> list[str]:
        """The command that starts the server, with the values that the keeper has found."""
        program = Path(self.environment, "bin", self.program)
        python = program.with_name("python")
        # -I keeps what CANN and Ray put on PYTHONPATH out of the server.
        command = [str(python), "-I", str(program)]
        command += [found.put_into(argument, self) for argument in self.arguments]
        if not self.set_env:
            return command
        script = 'source "$0" > /dev/null || exit 69; exec "$@"'
        return ["/bin/bash", "-c", script, self.set_env, *command]


@dataclass(frozen=True)
class HostValues:
    """Values that only the keeper on its host can know."""

    port: int
    device: str
    number: str
    """Number of the device among all devices of the host."""
    folder: Path
    hostname: str

    def put_into(self, argument: str, order: Order) -> str:
        """An argument with its placeholders replaced. Other braces stay."""
        values = {
            "host": order.host,
            "index": order.index,
            "name": order.name,
            "port": self.port,
            "device": self.device,
            "number": self.number,
            "folder": self.folder,
            "hostname": self.hostname,
        }
        for name, value in values.items():
            argument = argument.replace(f"{{{name}}}", str(value))
        return argument
