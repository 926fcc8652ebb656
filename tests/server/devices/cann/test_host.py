"""The operators of a host: what is declared or installed, and what of it can run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npucall.errors import (
    OperatorUnavailableError,
    OperatorUnknownError,
    VariantUnavailableError,
)
from npucall.operators import CATALOGUE
from npucall_server.devices.cann.host import HostCatalogue, header_folders
from npucall_server.devices.cann.operators import OpApi
from npucall_server.npu_settings import AscendPaths

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

TARGET, OF_VENDOR, HEADER_ONLY = (
    "aclnnKlDivTargetBackward",
    "aclnnVendorScale",
    "aclnnReluGradV4",
)


def host(paths: AscendPaths) -> HostCatalogue:
    return HostCatalogue(OpApi(paths, RuntimeError, lambda: None), paths)


@pytest.fixture
def built_in(paths: AscendPaths, loaded: Simulator) -> HostCatalogue:
    """CANN 9.x without custom packages."""
    return host(paths._replace(custom=()))


@pytest.fixture
def custom(paths: AscendPaths, loaded: Simulator) -> HostCatalogue:
    """CANN 9.x with the custom package."""
    return host(paths)


def test_cann_s_own_library_has_the_variant_builtin(built_in: HostCatalogue) -> None:
    assert built_in.variant == "builtin"
    assert built_in.find(TARGET).variant == "builtin"
    assert built_in.find(TARGET, default="documented").variant == "builtin"


def test_a_custom_package_has_the_variant_community(custom: HostCatalogue) -> None:
    assert custom.variant == "community"
    assert custom.find(TARGET).variant == "community"
    assert custom.find(TARGET, "community").variant == "community"


@pytest.mark.parametrize("other", ["community", "documented"])
def test_another_variant_is_refused_with_the_one_that_is_there(
    built_in: HostCatalogue, other: str
) -> None:
    with pytest.raises(VariantUnavailableError) as caught:
        built_in.runnable(TARGET, other)
    assert str(caught.value) == (
        f"operator: expected variant builtin of {TARGET}, which this host has, found {other}"
    )
    assert caught.value.details == {"operator": TARGET, "variant": other}


def test_a_variant_that_nobody_declares_is_unknown(built_in: HostCatalogue) -> None:
    with pytest.raises(OperatorUnknownError, match="found 'other'"):
        built_in.find(TARGET, "other")


def test_without_libraries_declared_operators_are_listed_and_unavailable() -> None:
    nowhere = host(AscendPaths(Path("/nowhere"), None, ()))
    assert [operator.title for operator in nowhere] == [operator.title for operator in CATALOGUE]
    assert nowhere.variant == ""
    reason = "expected aclnnL1LossBackward in a library of this host, found it in no library"
    assert nowhere.unavailable_because(CATALOGUE.find("aclnnL1LossBackward")) == reason
    with pytest.raises(OperatorUnavailableError, match=f"^operator: {reason}$") as caught:
        nowhere.runnable("aclnnL1LossBackward")
    assert type(caught.value) is OperatorUnavailableError
    with pytest.raises(OperatorUnavailableError, match=TARGET):
        nowhere.runnable(TARGET)


def test_what_cannot_run_is_described_all_the_same(built_in: HostCatalogue) -> None:
    assert built_in.find(TARGET, "community").variant == "community"


def test_every_declared_operator_is_there(custom: HostCatalogue) -> None:
    titles = {operator.title for operator in custom}
    assert titles >= {operator.title for operator in CATALOGUE}
    reasons = {o.title: custom.unavailable_because(o) for o in custom}
    assert {title for title, reason in reasons.items() if reason} == {
        f"{TARGET} (builtin)",
        f"{TARGET} (documented)",
    }


def test_headers_add_operators_that_a_library_has(custom: HostCatalogue) -> None:
    added = custom.find("aclnnRsub")
    assert (added.reference, added.source) == (False, "aclnn_rsub.h")
    assert custom.find(OF_VENDOR).source == "aclnn_vendor_scale.h"


def test_an_operator_of_a_header_that_no_library_has_is_unknown(
    custom: HostCatalogue, paths: AscendPaths
) -> None:
    assert any((folder / "aclnn_relu_grad_v4.h").exists() for folder in header_folders(paths))
    with pytest.raises(OperatorUnknownError):
        custom.find(HEADER_ONLY)


def test_what_is_declared_wins_over_a_header_of_its_name(custom: HostCatalogue) -> None:
    operator = custom.find("aclnnL1LossBackward")
    assert operator is CATALOGUE.find("aclnnL1LossBackward")


def test_the_custom_package_s_own_operator_is_gone_without_it(built_in: HostCatalogue) -> None:
    with pytest.raises(OperatorUnknownError):
        built_in.find(OF_VENDOR)


def test_headers_of_custom_packages_are_looked_at_first(tmp_path: Path) -> None:
    for vendor in ("b", "a"):
        (tmp_path / "opp/vendors" / vendor / "op_api/include").mkdir(parents=True)
    own = [tmp_path / "y", tmp_path / "x"]
    folders = header_folders(AscendPaths(tmp_path / "home", tmp_path / "opp", tuple(own)))
    assert [str(folder.relative_to(tmp_path)) for folder in folders] == [
        "y/op_api/include",
        "x/op_api/include",
        "opp/vendors/a/op_api/include",
        "opp/vendors/b/op_api/include",
        "home/include/aclnnop",
        "opp/built-in/op_impl/ai_core/tbe/op_api/include/aclnnop",
    ]


def test_without_paths_there_are_no_headers() -> None:
    assert list(header_folders(AscendPaths(None, None, ()))) == []
