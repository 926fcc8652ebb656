"""The headers are downloaded once, and nothing else is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import wheel

if TYPE_CHECKING:
    from pathlib import Path

    from .headers import Headers


def test_what_is_kept_is_headers(headers: Headers) -> None:
    kept = [path for path in headers.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in kept} == {".h"}
    assert headers.folder / "acl" / "acl_rt.h" in kept


def test_headers_that_are_there_are_not_downloaded(
    headers: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(wheel, "_download")
    assert wheel.headers() == headers.folder


def test_a_wheel_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(wheel.UnavailableError, match=r"expected to download torch_npu==2\.14\.0"):
        wheel.headers(tmp_path)
    assert list(tmp_path.iterdir()) == []
