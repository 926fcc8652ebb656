"""Settings for experts: ``--help`` leaves them out, ``--help-all`` shows all."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from pydantic import Field
from pydantic.fields import FieldInfo

_EXPERT: dict[str, Any] = {"expert": True}


def expert(*default: Any, **told: Any) -> Any:
    """The field of a setting that an administrator seldom touches."""
    return Field(*default, json_schema_extra=_EXPERT, **told)


def is_expert(field: FieldInfo) -> bool:
    """Whether a setting is declared as one for experts."""
    return field.json_schema_extra == _EXPERT


def formatter_of(fields: dict[str, FieldInfo]) -> type[argparse.HelpFormatter]:
    """What writes a help without the settings for experts."""
    hidden = {name for name, field in fields.items() if is_expert(field)}

    class Short(argparse.RawDescriptionHelpFormatter):
        def add_usage(self, *_: Any) -> None:
            super().add_usage("%(prog)s [--SETTING VALUE ...]", [], [])

        def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
            super().add_arguments([each for each in actions if _name_of(each) not in hidden])

        def format_help(self) -> str:
            return f"{super().format_help()}\n--help-all shows {len(hidden)} more, for experts.\n"

    return Short


def _name_of(action: argparse.Action) -> str:
    """The setting of an option."""
    long = next((each for each in action.option_strings if each.startswith("--")), "")
    return long[2:].replace("-", "_")
