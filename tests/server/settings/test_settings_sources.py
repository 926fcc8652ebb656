"""Where settings come from: flags, then the environment, then a TOML file, then defaults."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.environment import variables
from npucall_server.commands.serve import fault_of_memory
from npucall_server.directory.settings import read as read_directory
from npucall_server.settings import limits as module
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.server import read as read_flags

Machine = Callable[[str, str, str | None], None]


def read(*flags: str) -> ServerSettings:
    return read_flags(flags)


def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each source gives a value of its own; the first of these that is there counts."""
    config, name = tmp_path / "settings.toml", "NPUCALL_QUEUE_LENGTH"
    config.write_text("queue_length = 3\n")
    flag, file = "--queue-length=1", f"--config={config}"
    assert [read(*flags).queue_length for flags in ((flag, file), (file,), ())] == [1, 3, 64]
    monkeypatch.setenv("NPUCALL_CONFIG", str(config))
    assert read().queue_length == 3
    monkeypatch.setenv(name, "2")
    assert [read(*flags).queue_length for flags in ((flag, file), (file,), ())] == [1, 2, 2]
    assert ServerSettings(queue_length=1).queue_length == 1  # an argument counts too


def test_a_directory_reads_the_file_of_its_servers_and_says_what_it_ignores(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('usage_file = "usage"\nmax_connections = 7\n')
    settings = read_directory([f"--config={config}"])
    assert settings.max_connections == 7
    (warning,) = settings.warnings
    assert warning.startswith("usage_file: expected a setting of a directory, found one of")
    config.write_text("usagefile = 1\n")
    with pytest.raises(ValueError, match="usagefile: no setting has this name"):
        read_directory([f"--config={config}"])


def test_who_starts_a_server_may_say_what_holds_if_nobody_says_something_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text("queue_length = 3\n")
    monkeypatch.setenv("NPUCALL_DEFAULT_QUEUE_LENGTH", "5")
    assert variables.faults_of(["NPUCALL_DEFAULT_QUEUE_LENGTH"]) == {}
    assert [read(*flags).queue_length for flags in ((f"--config={config}",), ())] == [3, 5]
    monkeypatch.setenv("NPUCALL_QUEUE_LENGTH", "2")
    assert read().queue_length == 2


def test_paths_of_a_file_count_from_its_folder_and_those_of_flags_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Printed they are whole, since the file that they are printed to may lie anywhere."""
    (tmp_path / "etc").mkdir()
    monkeypatch.chdir(tmp_path)
    config = Path("etc/server.toml")
    config.write_text(
        'usage_file = "usage"\ntls_key = "/keys/x"\ntoken_hashes = "tokens"\n'
        'oidc_issuer = "https://i.example"\noidc_audience = "a"\noidc_keys = "keys.json"\n'
        "[tenants.vision]\n"
    )
    found = read(f"--config={config}", "--tls-certificate=x.pem")
    assert (found.usage_file, found.token_hashes) == (Path("etc/usage"), Path("etc/tokens"))
    assert (found.tls_key, found.oidc_keys) == (Path("/keys/x"), "etc/keys.json")
    assert found.tls_certificate == Path("x.pem")
    printed = tomllib.loads(found.as_toml())
    assert printed["usage_file"] == str(tmp_path / "etc/usage")
    assert printed["tls_certificate"] == str(tmp_path / "x.pem")
    url = "https://i.example/keys"
    config.write_text(config.read_text().replace("keys.json", url))
    found = read(f"--config={config}", "--tls-certificate=x.pem")
    assert found.oidc_keys == url


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "QUEUE_LENGTH", "LISTEN", "DIRECTORY_LISTEN":
        monkeypatch.setenv(f"NPUCALL_{name}", "")
    assert read_flags([]) == read_flags(["--listen=127.0.0.1:50051"])
    assert read_directory([]).listen


def test_a_setting_that_is_no_longer_there_is_a_warning_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    config = tmp_path / "settings.toml"
    for prefix, read_them in (variables.SERVER, read_flags), (variables.DIRECTORY, read_directory):
        for name, instead in variables.REMOVED[prefix].items():
            with subtests.test(prefix + name), monkeypatch.context() as patch:
                config.write_text(f'{name} = "1"\nmax_connections = 7\n')
                option = f"--{name.replace('_', '-')}"
                for flags in [option, "x"], [f"{option}=x"], [f"--config={config}"]:
                    said = read_them([*flags, "--log-calls", "errors"])
                    warning = f"the setting {name} is no longer there, and is ignored; {instead}"
                    assert (said.warnings, said.log_calls) == ([warning], "errors")
                assert said.max_connections == 7
                variables_of = [f"{prefix}{name.upper()}", f"{prefix}DEFAULT_{name.upper()}"]
                for variable in variables_of:
                    patch.setenv(variable, "1")
                warnings = sorted(read_them([]).warnings, key=len)
                assert len(warnings) == 2
                for variable, warning in zip(variables_of, warnings, strict=True):
                    assert warning.startswith(f"the environment variable {variable} is no longer")


def test_flags_are_written_with_hyphens(subtests: pytest.Subtests) -> None:
    for flag, name, value in [
        ("--max-message-bytes=64MiB", "max_message_bytes", 64 * 2**20),
        ("--memory-limit=8GiB", "memory_limit", 8 * 2**30),
        ("--memory-limit=1000", "memory_limit", 1000),
        ("--chunk-bytes=64KiB", "chunk_bytes", 64 * 2**10),  # the least
        ("--chunk-bytes=3MiB", "chunk_bytes", 3 * 2**20),  # the most
        ("--call-timeout=2.5", "call_timeout", 2.5),
        ("--log-calls=slow", "log_calls", "slow"),
        ("--insecure-bind", "insecure_bind", True),
        ("--no-insecure-bind", "insecure_bind", False),
    ]:
        with subtests.test(flag):
            assert getattr(read(flag), name) == value


# A value other than the default for every setting.
OTHERS: dict[str, Any] = {
    "device": "cann:3",
    "soc": "Ascend910_9391",
    "variant": "builtin",
    "keep_memory": "2MiB",
    "servers_per_host": 3,
    "poison": True,
    "listen": "[::1]:4321",
    "listen_host": "::1",
    "insecure_bind": True,
    "ready_file": '/run/ready é 😀 "quoted" \\ \t',
    "queue_length": 7,
    "memory_limit": 12345,
    "overcommit": True,
    "max_message_bytes": 54321,
    "call_timeout": 1e-3,
    "drain_timeout": 0.0,
    "log_calls": "errors",
    "shared_memory": "/run/npucall/side.sock",
    "shared_memory_limit": 77777,
    "shared_memory_users": (1000, 1001),
    "frames_socket": "/run/npucall/frames.sock",
    "frames_listen": "127.0.0.1:51051",
    "frames_advertise": 51052,
    "max_streams": 3,
    "max_connections": 9,
    "computation_limit": 5000,
    "peer_timeout": 1.5,
    "chunk_bytes": "256KiB",
    "lanes": 5,
    "device_timeout": 0.25,
    "staging_limit": 0,
    "kept_device_memory": 4096,
    "kept_calls": 3,
    "phase_one_cache": 11,
    "deterministic": True,
    "busy_wait": True,
    "careful": True,
    "reflection": False,
    "max_reservation": 60.5,
    "handle_memory": "3MiB",
    "max_sessions": 5,
    "server_id": "npu1",
    "session_lease": 7.5,
    "digest_cache_bytes": 0,
    "tls_certificate": "/etc/npucall/server.pem",
    "tls_key": "/etc/npucall/server.key",
    "tls_client_ca": "/etc/npucall/ca.pem",
    "health_listen": "127.0.0.1:4322",
    "tenants": {
        "vision": {"weight": 3, "class": "batch", "memory": "4GiB", "users": ["alice", 1000]},
        "a.b": {"role": "bench", "claims": ["repo:lab/*"], "device_seconds_per_hour": 0.5},
    },
    "token_hashes": "/run/npucall/tokens",
    "oidc_issuer": "https://ci.example",
    "oidc_audience": "npucall",
    "oidc_keys": "https://ci.example/keys",
    "oidc_tenant_claim": "repository",
    "oidc_name_claim": "actor",
    "usage_file": "/var/lib/npucall/usage.jsonl",
    "state_folder": "/var/lib/npucall/state",
    "metrics_listen": "127.0.0.1:9464",
    "device_lock": "/run/npucall/device.lock",
    "device_lock_wait": 1.25,
    "announce": "tls:d.lab, [::1]:50050, unix:/run/d",
    "advertise": "npu1.lab:50051",
    "labels": {"rack": "7", "lab/driver": 'é "8" = 9'},
    "announce_ca": "/etc/npucall/pool.pem",
    "announce_token_file": "/run/npucall/token",
}


def test_every_setting_but_two_has_another_value_here() -> None:
    others = set(ServerSettings.model_fields) - set(OTHERS)
    assert others == {"config", "reservation_key"}


def test_a_secret_is_never_printed() -> None:
    secret = "a secret of some length"
    settings = ServerSettings(reservation_key=secret)
    assert settings.reservation_key is not None
    assert settings.reservation_key.get_secret_value() == secret
    for text in settings.as_toml(), repr(settings), str(settings):
        assert secret not in text
    assert "reservation_key" not in settings.as_toml()


def test_printed_settings_are_a_file_that_gives_the_same_settings(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    for printed in ServerSettings(), ServerSettings(**OTHERS):
        config.write_text(printed.as_toml())
        assert read("--config", str(config)) == printed.model_copy(update={"config": config})


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x7f,")))
def test_any_address_is_printed_as_toml(address: str) -> None:
    printed = ServerSettings(listen=f"unix:{address}").as_toml()
    assert tomllib.loads(printed)["listen"] == f"unix:{address}"


def test_a_file_may_give_addresses_as_a_list(tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('listen = ["127.0.0.1:1", "unix:/run/x"]\n')
    assert read("--config", str(config)).listen == "127.0.0.1:1,unix:/run/x"


LIMIT_FILES = {
    "version 2, in a container": ("0::/", "memory.max"),
    "version 2, of a unit": ("0::/system.slice/x.service", "system.slice/x.service/memory.max"),
    "version 2, of a group around it": ("0::/system.slice/x.service", "system.slice/memory.max"),
    "version 1, in a container": ("9:memory:/docker/1", "memory/memory.limit_in_bytes"),
    "version 1, of a unit": ("9:memory:/x\n8:cpu:/y", "memory/x/memory.limit_in_bytes"),
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A machine with 1 GiB, whose control group has a limit in a file."""
    sizes = {"SC_PHYS_PAGES": 2**18, "SC_PAGE_SIZE": 2**12}
    monkeypatch.setattr(module.os, "sysconf", sizes.__getitem__)

    def limited(own: str, file: str, text: str | None) -> None:
        """``own``: what the process is told of its group."""
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        limit = folder / "groups" / file
        limit.parent.mkdir(parents=True)
        (folder / "own").write_text(own + "\n")
        monkeypatch.setattr(module, "_OWN_CGROUP", folder / "own")
        monkeypatch.setattr(module, "_CGROUPS", folder / "groups")
        if text is not None:
            limit.write_text(text)

    return limited


HALVES: list[tuple[str | None, int, int]] = [
    (None, 1, 2**29),  # no control group
    ("max\n", 1, 2**29),
    ("9223372036854771712\n", 1, 2**29),  # how version 1 says none
    (f"{2**28}\n", 1, 2**27),
    (f"{2**40}\n", 1, 2**29),  # more than the machine has
    (None, 8, 2**26),  # an eighth of the machine's half
    (f"{2**26}\n", 8, 2**25),  # its own control group, which is less than its share
    (f"{2**29}\n", 8, 2**26),  # one that allows more than its share
    (f"{2**29}\n", 1, 2**28),
]
"""The limit, servers on this host, and half of what each of them has."""


@each(
    ("group", "servers", "limit", "said"),
    [
        ("1073741824", 1, "8GiB", "at most 512.0 MiB .536870912., .* 1.0 GiB; found 8.0 GiB"),
        ("1073741824", 1, "536870913", "found 512.0 ?MiB"),
        ("1073741824", 1, "512MiB", ""),
        (None, 2, "170MiB", ""),
        (None, 2, "171MiB", "at most 170.7 ?MiB"),
        ("67108864", 1, "1MiB", r"at most 0 ?B"),
    ],
)
def test_a_memory_limit_that_cannot_be_kept_is_refused_with_the_one_that_can(
    machine: Machine, group: str | None, servers: int, limit: str, said: str
) -> None:
    """Before: 8 GiB in a container of 1 GiB was taken; eight calls had it killed ten times."""
    own, file = LIMIT_FILES["version 2, in a container"]
    machine(own, file, group)
    told: dict[str, Any] = {"memory_limit": limit, "servers_per_host": servers}
    fault = fault_of_memory(ServerSettings(**told))
    assert re.search(said, fault) if said else fault == ""
    assert fault_of_memory(ServerSettings(**told, overcommit=True)) == ""
    assert fault_of_memory(ServerSettings(servers_per_host=servers)) == ""  # the default is


def test_the_memory_limit_is_half_of_what_machine_and_control_group_allow(
    machine: Machine, subtests: pytest.Subtests
) -> None:
    """Servers of one host share the machine, but not each other's control groups."""
    for kind, (own, file) in LIMIT_FILES.items():
        for limit, servers, half in HALVES:
            with subtests.test(kind, limit=limit, servers=servers):
                machine(own, file, limit)
                given = {} if servers == 1 else {"servers_per_host": servers}
                settings = ServerSettings(**given)
                assert (settings.memory_limit, settings.shared_memory_limit) == (half, half // 2)
