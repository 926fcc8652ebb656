"""A report as one page that needs nothing but itself.

``page.html`` is the page, a template of Jinja. All text is escaped on its way in. The page has no
scripts, and its Content-Security-Policy forbids everything from elsewhere, so a hostile server's
texts could not load anything either if they were not escaped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from npucall_conformance.reporting import tables, wording
from npucall_conformance.reporting.causes import causes
from npucall_conformance.reporting.report import Report


def render(report: Report) -> str:
    """The text of the page."""
    return _page().render(report=report)


@cache
def _page() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, finalize=_harmless,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {"causes": causes, "tables": tables, "wording": wording}
    return environment.get_template("page.html")


def _harmless(value: Any) -> Any:
    return value if isinstance(value, Markup) else wording.clean(str(value))
