"""What a keeper is told: texts and numbers, as JSON, and nothing that could be code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Order:
    """One server on one host. Paths are those of that host."""

    name: str
    """Of the server in the pool, and of its files: letters, digits, and ``.-``."""
    host: str
    """The address that the host has for Ray, and that the server listens on."""
    environment: str
    """Folder of the virtual environment that npucall-server is installed in."""
    program: str
    """A command of that environment."""
    arguments: tuple[str, ...]
    """Its arguments. In them ``{host}``, ``{port}``, ``{device}``, ``{number}``, ``{index}``,
    ``{name}``, ``{hostname}`` and ``{folder}`` stand for what the keeper finds on its host.
    """
    ports: tuple[int, int]
    """The first and the last that it may listen on."""
    port: int
    """The first one of ``ports`` to try."""
    index: int = 0
    """Of the server among those of its kind on the host."""
    device: str = "cpu"
    """What the server's ``--device`` says; ``cann`` stands for the NPU that Ray gave."""
    set_env: str = ""
    """A shell script that is read before the program starts, such as CANN's set_env.sh."""
    folder: str = ""
    """Of locks and logs; empty: one of this user's in the system's folder for temporary files."""
    drain: float = 40.0
    """Seconds that it gets to end, once asked to."""
    needs: dict[str, float] = field(default_factory=dict)
    """Ray's resources that its keeper has while it lives, which hold it to its host too."""

    def as_text(self) -> str:
        """As ``of_text`` reads it."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Of such a text."""
        values = json.loads(text)
        return cls(
            **{
                **values,
                "arguments": tuple(values["arguments"]),
                "ports": tuple(values["ports"]),
            }
        )

    def command(self, found: Found) -> list[str]:
        """What starts the server, once the keeper has found the rest."""
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
class Found:
    """What only the keeper can know, on its host."""

    port: int
    device: str
    number: str
    """Of the device among all of the host."""
    folder: Path
    hostname: str

    def put_into(self, argument: str, order: Order) -> str:
        """An argument with what its placeholders stand for; other braces stay."""
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
