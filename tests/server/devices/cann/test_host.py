"""Which operators and variants a host has, by its libraries and headers."""

from pathlib import Path

import pytest
from tests.simulator.control import Simulator

from npucall.errors import (
    OperatorUnavailableError,
    OperatorUnknownError,
    VariantUnavailableError,
)
from npucall.operators import CATALOGUE
from npucall_server.devices.cann.host import HostCatalogue, header_folders
from npucall_server.settings.npu import AscendPaths

from .conftest import op_api

TARGET, L1 = "aclnnKlDivTargetBackward", "aclnnL1LossBackward"


def host(paths: AscendPaths) -> HostCatalogue:
    return HostCatalogue(op_api(paths), paths)


@pytest.fixture(scope="module")
def built_in(paths: AscendPaths, loaded: Simulator) -> HostCatalogue:
    """CANN 9.x without custom packages."""
    return host(paths._replace(custom=()))


@pytest.fixture(scope="module")
def custom(paths: AscendPaths, loaded: Simulator) -> HostCatalogue:
    """CANN 9.x with the custom package."""
    return host(paths)


def test_the_library_says_the_variant(built_in: HostCatalogue, custom: HostCatalogue) -> None:
    assert (built_in.variant, custom.variant) == ("builtin", "community")
    assert built_in.find(TARGET).variant == "builtin"
    assert built_in.find(TARGET, default="documented").variant == "builtin"
    assert custom.find(TARGET).variant == "community"
    for each in built_in, custom:  # what cannot run is described all the same
        assert each.find(TARGET, "community").variant == "community"


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


def test_without_libraries_declared_operators_are_listed_and_unavailable() -> None:
    nowhere = host(AscendPaths(Path("/nowhere"), None, ()))
    assert [operator.title for operator in nowhere] == [operator.title for operator in CATALOGUE]
    assert nowhere.variant == ""
    reason = f"expected {L1} in a library of this host, found it in no library"
    assert nowhere.unavailable_because(CATALOGUE.find(L1)) == reason
    with pytest.raises(OperatorUnavailableError, match=f"^operator: {reason}$") as caught:
        nowhere.runnable(L1)
    assert type(caught.value) is OperatorUnavailableError
    with pytest.raises(OperatorUnavailableError, match=TARGET):
        nowhere.runnable(TARGET)


def test_every_declared_operator_is_there_but_other_variants(custom: HostCatalogue) -> None:
    reasons = {operator.title: custom.unavailable_because(operator) for operator in custom}
    assert reasons.keys() >= {operator.title for operator in CATALOGUE}
    lacking = {title for title, reason in reasons.items() if reason}
    others = {f"{TARGET} (builtin)", f"{TARGET} (documented)"}
    assert lacking == {*others, "aclnnHardswishBackward (experimental)"}


def test_no_library_tells_whether_it_has_an_experimental_operator(custom: HostCatalogue) -> None:
    assert custom.runnable("aclnnHardswishBackward").variant == ""
    with pytest.raises(VariantUnavailableError, match="expected no variant of aclnnHardswishB"):
        custom.runnable("aclnnHardswishBackward", "experimental")


def test_headers_add_operators_that_a_library_has_and_no_others(
    custom: HostCatalogue, built_in: HostCatalogue, paths: AscendPaths
) -> None:
    added = custom.find("aclnnRsub")
    assert (added.reference, added.source) == (False, "aclnn_rsub.h")
    assert custom.find("aclnnVendorScale").source == "aclnn_vendor_scale.h"
    assert custom.find(L1) is CATALOGUE.find(L1)  # what is declared wins over its header
    assert any((folder / "aclnn_relu_grad_v4.h").exists() for folder in header_folders(paths))
    for catalogue, name in (custom, "aclnnReluGradV4"), (built_in, "aclnnVendorScale"):
        with pytest.raises(OperatorUnknownError):
            catalogue.find(name)
    with pytest.raises(OperatorUnknownError, match="found 'other'"):
        built_in.find(TARGET, "other")


def test_headers_of_custom_packages_are_looked_at_first(tmp_path: Path) -> None:
    for vendor in ("b", "a"):
        (tmp_path / "opp/vendors" / vendor / "op_api/include").mkdir(parents=True)
    own = (tmp_path / "y", tmp_path / "x")
    folders = header_folders(AscendPaths(tmp_path / "home", tmp_path / "opp", own))
    assert [str(folder.relative_to(tmp_path)) for folder in folders] == [
        "y/op_api/include",
        "x/op_api/include",
        "opp/vendors/a/op_api/include",
        "opp/vendors/b/op_api/include",
        "home/include/aclnnop",
        "opp/built-in/op_impl/ai_core/tbe/op_api/include/aclnnop",
    ]
    assert list(header_folders(AscendPaths(None, None, ()))) == []
