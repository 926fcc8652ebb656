"""``npucall conform local: --matrix``: every product in one report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import typer
from servers import Altered, client_of
from typer.testing import CliRunner

from npucall.products import PRODUCTS, product_of
from npucall_client.conformance import command
from npucall_client.conformance.reporting.matrix import SOCS
from npucall_client.local import LocalTransport

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SILU = ("--operator", "Silu", "--block", "grid", "--quick")


def conform(*words: str) -> Result:
    app = typer.Typer()
    app.command("conform")(command.conform)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def flip(storage: bytearray) -> None:
    storage[-1] ^= 0x80


@pytest.fixture
def wrong_on_310p(monkeypatch: pytest.MonkeyPatch) -> None:
    """``local:`` is wrong on Ascend310P alone."""

    def connect(*_: Any, soc: str = "Ascend910B1") -> Any:
        is_wrong = product_of(soc).soc == "Ascend310P"
        return client_of(Altered(flip, soc) if is_wrong else LocalTransport(soc))

    monkeypatch.setattr(command, "connect", connect)


def test_every_product_has_a_soc() -> None:
    assert [product_of(soc) for soc in SOCS] == list(PRODUCTS)


def test_a_fault_that_one_product_has_is_found_and_named(
    wrong_on_310p: None, tmp_path: Path
) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "html")}
    words = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    result = conform("local:", "--matrix", *SILU, *words, "--save", str(tmp_path / "bundles"))
    assert result.exit_code == 1
    assert "Fails, on Ascend310P." in result.output
    assert "--soc Ascend310P3" in result.output
    report = json.loads(files["json"].read_text())
    verdicts = {name: each["verdict"] for name, each in report["products"].items()}
    assert set(verdicts) == {product.soc for product in PRODUCTS}
    assert verdicts["Ascend310P"] == "fails"
    assert verdicts["Ascend910B"] == "conforms"
    assert (report["passed"], report["verdict"]) == (False, "fails")
    suites = ET.fromstring(files["junit"].read_text())
    assert {s.get("name") for s in suites if s.get("failures") != "0"} == {"Ascend310P aclnnSilu"}
    page = files["html"].read_text()
    assert '<details id="Ascend310P" open>' in page
    assert page.count("<details id=") == len(PRODUCTS)
    assert [each.name for each in (tmp_path / "bundles").iterdir()] == ["Ascend310P3"]


def test_products_that_all_conform_are_one_verdict() -> None:
    result = conform("local:", "--matrix", "--operator", "Tanh", "--block", "grid", "--quick")
    assert (result.exit_code, result.exception) == (0, None)
    assert "Conforms on 6 products; nothing of it is on Ascend310." in result.output


def test_anchors_of_the_page_are_there_once_and_point_somewhere(
    wrong_on_310p: None, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    conform("local:", "--matrix", *SILU, "--html", str(path))
    text = path.read_text()
    ids = [part.partition('"')[0] for part in text.split(' id="')[1:]]
    links = [part.partition('"')[0] for part in text.split('href="#')[1:]]
    assert len(ids) == len(set(ids))
    assert links
    assert set(links) <= set(ids)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("npu-host:50051",), "matrix: expected local:"),
        (("local:", "--soc", "Ascend910A"), "matrix: expected no --soc"),
        (("local:", "--against", "local:"), "matrix: expected no --against"),
    ],
)
def test_what_has_no_meaning_on_every_product_is_refused(words: tuple[str, ...], says: str) -> None:
    assert says in str(conform(*words, "--matrix", *SILU).exception)


@pytest.mark.long
def test_every_product_passes_in_full() -> None:
    assert conform("local:", "--matrix").exit_code == 0
