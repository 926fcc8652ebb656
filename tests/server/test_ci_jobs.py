"""The recipes of docs/operations.md for CI jobs, with claims as those of GitHub and GitLab."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npucall.errors import TenantUnknownError
from npucall_server.access import oidc
from npucall_server.access.tenants import Tenants
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.log import Log
from npucall_server.settings import ServerSettings

from .issuer import Issuer, write_keys

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
RECIPES = {
    recipe["oidc_issuer"]: recipe
    for block in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if "oidc_issuer" in (recipe := tomllib.loads(block))
}
GITHUB = {
    "iss": "https://token.actions.githubusercontent.com",
    "jti": "6a5a2b5c-0000-4000-8000-000000000000",
    "sub": "repo:lab/vision:ref:refs/heads/main",
    "aud": "npucall.lab.example",
    "ref": "refs/heads/main",
    "ref_type": "branch",
    "sha": "0" * 40,
    "repository": "lab/vision",
    "repository_owner": "lab",
    "repository_id": "74",
    "repository_visibility": "private",
    "actor": "alice",
    "actor_id": "12",
    "event_name": "push",
    "workflow": "measure",
    "job_workflow_ref": "lab/vision/.github/workflows/measure.yml@refs/heads/main",
    "run_id": "30433642",
    "run_attempt": "1",
    "runner_environment": "github-hosted",
}
GITLAB = {
    "iss": "https://gitlab.lab.example",
    "jti": "c82eeb0c-5c6f-4a33-abf5-4c474b92b558",
    "sub": "project_path:lab/speech-ctc:ref_type:branch:ref:main",
    "aud": "npucall.lab.example",
    "namespace_id": "72",
    "namespace_path": "lab",
    "project_id": "20",
    "project_path": "lab/speech-ctc",
    "user_id": "1",
    "user_login": "bob",
    "user_email": "bob@lab.example",
    "pipeline_id": "574",
    "job_id": "302",
    "ref": "main",
    "ref_type": "branch",
    "ref_protected": "true",
    "runner_environment": "self-hosted",
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
