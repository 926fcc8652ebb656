"""The server: one process that runs operators on one device.

Its modules, from the top::

    script, __main__          the console script; the command
    app, core, front          a server of operators; what runs its calls; what every server has
    access_commands, certificates_command  tokens and tenants; certificates for a lab
    headers_command, health_command  what headers declare; whether a server serves
    directory, doctor         the command ``npucall-directory``; what keeps an NPU from working
    health_server, grpc_server, binding  only health; gRPC's threads and services; addresses
    announcing                tells directories that this server is there
    services                  the RPCs
    handling                  what every method shares: identity, message, log line, status
    metrics                   what Prometheus reads
    execution                 the life of one call
    executor, arrivals        admission; chunks on their way into a computation
    sessions, shared          handles and digests; shared memory
    kept_memory               gives freed memory back to the kernel
    turn, asked_turn, turns   turns of one call; of a call that may end servers; all turns
    gate                      who passes while the device is reserved
    peers, threads            waits for peers; threads for calls
    devices                   what runs calls
    budget                    what may come in before a call is admitted
    callers, connections      who waits for a call; connections as the kernel knows them
    ledger, quotas, shares    what callers hold; limits of tenants; who is next
    reservations, reservation_keys  a state machine; what proves a reservation
    tls, authority            certificates that are read again; a lab's own authority
    usage, usage_file         the account, and its file
    log, traces, process      the log; spans; signals and last words of the process
    watch                     a thread that looks every second
    settings, front_settings  settings of a server; those of every server, and their sources
    access_settings, announce_settings, connection_settings  who may call; announcing; peers
    memory_settings, npu_settings, reservation_settings  memory; an NPU; reservations
    session_settings, transport_settings, watch_settings  sessions; addresses, TLS; watching
    access                    who calls
    addresses, ready_file     what an address may be; the file that says where it answers
    device_kinds, device_lock  what ``--device`` may say; one process a device
    exits, faults, process_limits  exit codes; settings' faults; what the system allows
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version. It is read from the distribution's metadata when somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-server")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
