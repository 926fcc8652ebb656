"""``npucall conform local: --matrix``: every product in one report."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from npucall.products import PRODUCTS, product_of
from npucall_client.conformance import command as module
from npucall_client.conformance.reporting.matrix import SOCS
from npucall_client.local import LocalTransport

from .servers import Altered, client_of, command, flip

if TYPE_CHECKING:
    from pathlib import Path

conform = partial(command, "conform", "local:", "--matrix")


def test_every_product_has_a_soc() -> None:
    assert [product_of(soc) for soc in SOCS] == list(PRODUCTS)


def test_a_fault_that_one_product_has_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def connect(*_: Any, soc: str = "Ascend910B1") -> Any:
        is_wrong = product_of(soc).soc == "Ascend310P"
        return client_of(Altered(flip, soc) if is_wrong else LocalTransport(soc))

    monkeypatch.setattr(module, "connect", connect)
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    words = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    silu = ("--operator", "Silu", "--block", "grid", "--quick")
    result = conform(*silu, *words, "--save", str(tmp_path / "bundles"))
    assert result.exit_code == 1
    assert "Fails, on Ascend310P." in result.output
    assert "--soc Ascend310P3" in result.output
    report = json.loads(files["json"].read_text())
    verdicts = {name: each["verdict"] for name, each in report["products"].items()}
    assert set(verdicts) == {product.soc for product in PRODUCTS}
    assert (verdicts["Ascend310P"], verdicts["Ascend910B"]) == ("fails", "conforms")
    assert (report["passed"], report["verdict"]) == (False, "fails")
    suites = ET.fromstring(files["junit"].read_text())
    assert {s.get("name") for s in suites if s.get("failures") != "0"} == {"Ascend310P aclnnSilu"}
    assert [each.name for each in (tmp_path / "bundles").iterdir()] == ["Ascend310P3"]
    assert_sound(files["html"].read_text())


def assert_sound(page: str) -> None:
    """A part for each product, the wrong one open; anchors are there once, links lead to them."""
    assert '<details id="Ascend310P" open>' in page
    assert page.count("<details id=") == len(PRODUCTS)
    ids = [part.partition('"')[0] for part in page.split(' id="')[1:]]
    links = [part.partition('"')[0] for part in page.split('href="#')[1:]]
    assert len(ids) == len(set(ids))
    assert links
    assert set(links) <= set(ids)


def test_products_that_all_conform_are_one_verdict() -> None:
    result = conform("--operator", "Tanh", "--block", "grid", "--quick")
    assert (result.exit_code, result.exception) == (0, None)
    assert "Conforms on 6 products; nothing of it is on Ascend310." in result.output


@pytest.mark.long
def test_every_product_passes_in_full() -> None:
    assert conform().exit_code == 0
