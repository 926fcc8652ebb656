"""The recipes of docs/operations.md for CI jobs, with claims as those of GitHub and GitLab."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.server.issuer import Issuer, write_keys

from npucall.errors import TenantUnknownError
from npucall_server.access import oidc
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Tenants
from npucall_server.telemetry.log import Log

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
RECIPES = {
    recipe["oidc_issuer"]: recipe
    for block in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if "oidc_issuer" in (recipe := tomllib.loads(block))
}
GITHUB = {
    "iss": "https://token.actions.githubusercontent.com",
    "sub": "repo:lab/vision:ref:refs/heads/main",
    "aud": "npucall.lab.example",
    "repository": "lab/vision",
    "actor": "alice",
}
GITLAB = {
    "iss": "https://gitlab.lab.example",
    "sub": "project_path:lab/speech-ctc:ref_type:branch:ref:main",
    "aud": "npucall.lab.example",
    "project_path": "lab/speech-ctc",
    "user_login": "bob",
}
JOBS: list[tuple[dict[str, Any], str]] = [
    (GITHUB, "vision/lab/vision"),
    (GITHUB | {"sub": "repo:lab/vision:pull_request"}, "vision/lab/vision"),
    (GITHUB | {"sub": "repo:lab/vision:ref:refs/heads/other"}, "nobody"),
    (GITHUB | {"sub": "repo:evil/vision:ref:refs/heads/main"}, "nobody"),
    (GITLAB, "speech/bob"),
    (GITLAB | {"project_path": "lab/speech"}, "speech/bob"),
    (GITLAB | {"project_path": "evil/lab/speech"}, "nobody"),
]


def test_a_job_is_known_as_the_recipe_says(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The issuer is the recipe's but for its keys, which nobody else here can sign with."""
    with Issuer() as issuer:
        keys = str(write_keys(issuer, tmp_path / "keys"))
    for claims, person in JOBS:
        with subtests.test(person, sub=claims["sub"]):
            settings = ServerSettings(**RECIPES[claims["iss"]], oidc_keys=keys)
            guard = TenantsGuard(Tenants(settings.tenants), issuer=oidc.Issuer(settings, Log()))
            assert known(guard, f"Bearer {issuer.token(**claims)}") == person


def known(guard: TenantsGuard, authorization: str) -> str:
    try:
        return guard.identify_by(authorization).person
    except TenantUnknownError:
        return "nobody"


def test_there_is_a_recipe_for_each() -> None:
    assert set(RECIPES) == {GITHUB["iss"], GITLAB["iss"]}
