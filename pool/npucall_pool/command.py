"""The command ``npucall-pool``: a pool of servers on the hosts of a Ray cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import npucall_pool
from npucall_pool import cluster, pool_file, rows, steps
from npucall_pool.cluster import ClusterError

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keeps one npucall-server running for each device on the hosts of a Ray cluster. Run "
    "it on a host of the cluster, as the user that Ray runs as.",
)
_AT_FAULT, _WRONG_USE = 1, 2
_REMOVED = {
    "--environment": 'environment = "PATH"',
    "--server-option": "NAME = VALUE below [settings]",
    "--label": 'labels = {NAME = "VALUE"} below [settings]',
    "--set-env": 'set_env = "PATH"',
    "--ports": 'ports = "FIRST-LAST"',
    "--drain": "drain = SECONDS",
    "--folder": 'folder = "PATH"',
    "--resource": 'resource = "NAME" below [[servers]]',
    "--device": 'device = "DEVICE" below [[servers]]',
    "--servers-per-host": "per_host = NUMBER below [[servers]]",
    "--cpu": 'another [[servers]] with device = "cpu" and per_host = NUMBER',
    "--announce": 'announce = "HOST:PORT"',
    "--directory-port": "port = NUMBER below [directory]",
    "--directory-option": "NAME = VALUE below [directory.settings]",
}
"""Options that ``up`` had in version 0.1, and what the pool's file has instead."""

ClusterOption = Annotated[
    str, typer.Option("--cluster", help="Address of Ray's head; auto: the one of this host's node.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="A list of JSON objects, not a table.")]


def main() -> NoReturn:
    """Runs the command. If it cannot do its work, it prints one line and exits with code 1."""
    _tell_of_removed(sys.argv[1:])
    try:
        app()
    except (ClusterError, ValueError) as error:
        sys.stderr.write(f"npucall-pool: {error}\n")
    sys.exit(_AT_FAULT)


def _tell_of_removed(arguments: list[str]) -> None:
    """Exits if ``up`` gets an option that is in the file now: without it, it would start others."""
    given = {argument.partition("=")[0] for argument in arguments}
    if arguments[:1] != ["up"] or not given & _REMOVED.keys():
        return
    for option in sorted(given & _REMOVED.keys()):
        sys.stderr.write(
            f"npucall-pool: {option} is no longer an option; write {_REMOVED[option]} into the "
            "pool's file (npucall-pool up FILE)\n"
        )
    sys.exit(_WRONG_USE)


def _say_version(asked: bool) -> None:  # noqa: FBT001  # the value of an option
    if asked:
        typer.echo(f"npucall-pool {npucall_pool.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the command without a subcommand."""


@app.command()
def up(
    file: Annotated[
        Path,
        typer.Argument(
            help="TOML file of the pool: its kinds of servers, on which hosts, and their settings.",
        ),
    ],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Start what is missing on this host only: an address or a name that Ray knows; "
            "may be given several times.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds within which every server has to serve.")
    ] = 120.0,
    cluster_address: ClusterOption = "auto",
) -> None:
    """Starts what is missing: the directory, and a keeper for each device, which starts its server.

    Running servers are not changed, even if the file has changed: drain their host first.
    Servers that had been given up are started again. Exit code 1: some do not serve in time.
    """
    plan = pool_file.read(file)
    with cluster.connected(cluster_address):
        table, notes = steps.up(plan, tuple(host or ()), wait)
    typer.echo(rows.as_table(table))
    for note in notes:
        typer.echo(note, err=True)
    raise typer.Exit(0 if all(row.serves for row in table) else _AT_FAULT)


@app.command()
def status(*, as_json: JsonOption = False, cluster_address: ClusterOption = "auto") -> None:
    """Shows every server, as its keeper sees it. Exit code 1: some do not serve, or there are none.

    `npucall members` says whether clients reach a server: it asks the directory.
    """
    with cluster.connected(cluster_address):
        table = steps.status()
    typer.echo(rows.as_json(table) if as_json else rows.as_table(table))
    raise typer.Exit(0 if table and all(row.serves for row in table) else _AT_FAULT)


@app.command()
def drain(
    host: Annotated[str, typer.Argument(help="Address or name of a host that Ray knows.")],
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Give up keepers that do not answer, because their host is gone."
        ),
    ] = False,
    cluster_address: ClusterOption = "auto",
) -> None:
    """Stops the servers of a host. Then Ray may give the devices to others.

    The servers finish their calls first. The pool goes on without the host until `npucall-pool up`.
    """
    with cluster.connected(cluster_address):
        faults = steps.drain(host, force=force)
    _say(faults)


@app.command()
def down(
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Give up keepers that do not answer, because their hosts are gone."
        ),
    ] = False,
    cluster_address: ClusterOption = "auto",
) -> None:
    """Stops every server, and then the directory. The servers finish their calls first."""
    with cluster.connected(cluster_address):
        faults = steps.down(force=force)
    _say(faults)


def _say(faults: dict[str, str]) -> None:
    """Prints what happened to each server. Raises ClusterError unless all have ended."""
    for name, fault in faults.items():
        typer.echo(f"{name}: {fault or 'ended'}")
    if any(faults.values()):
        raise ClusterError(
            "not all have ended; with --force, keepers that do not answer are given up"
        )
