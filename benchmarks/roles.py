"""Compares the roles that header_roles.py gives tensors with what documents of operators say.

``python benchmarks/roles.py FOLDER...`` reads all headers (``*.h``) and documents (``*.md``) below
the folders: of an installed CANN and its documents, or of the repositories of its operators.
Neither are part of this repository. It prints where both sides differ and how many operators it
compared, and fails where an output would be lost or content not sent.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from documents import Stated, prototypes_in, stated_in

from npucall_server.devices.cann.header_grammar import Found, parse
from npucall_server.devices.cann.header_roles import TensorRole, roles_of

LOST = "an output that we do not fetch"
NOT_SENT = "content that we do not send"
EXTRA = "an input that we also fetch"
IN_PLACE = "an input to the document, in place by its name"
SENT = "an output whose content we also send"
_MEANINGS = {
    (TensorRole.INPUT, TensorRole.OUTPUT): LOST,
    (TensorRole.INPUT, TensorRole.IN_OUT): LOST,
    (TensorRole.OUTPUT, TensorRole.INPUT): EXTRA,
    (TensorRole.OUTPUT, TensorRole.IN_OUT): NOT_SENT,
    (TensorRole.IN_OUT, TensorRole.INPUT): EXTRA,
    (TensorRole.IN_OUT, TensorRole.OUTPUT): SENT,
}
DOCUMENTS_ERR = frozenset(
    {("aclnnConfusionTranspose", "x"), ("aclnnNsaSelectedAttentionGrad", "attentionOut")}
)
"""Operators and their tensors that a document calls outputs, though the kernels only read them."""

_PHASE_ONE = "GetWorkspaceSize"
_BY_DOCUMENT = "a document's code"


@dataclass(frozen=True)
class Miss:
    """A tensor whose role is not what a document says."""

    operator: str
    tensor: str
    ours: TensorRole
    theirs: TensorRole
    document: str

    @property
    def meaning(self) -> str:
        """What it costs."""
        meaning = _MEANINGS[self.ours, self.theirs]
        named = "Ref" in self.tensor or "Inplace" in self.operator
        return (
            IN_PLACE if (meaning == EXTRA and self.ours is TensorRole.IN_OUT and named) else meaning
        )


@dataclass(frozen=True)
class Comparison:
    """How many operators and tensors have a prototype and a document, and where roles differ.

    ``by_document``: those of them that no header declares; the code of a document does.
    """

    operators: int
    compared: int
    by_document: int
    tensors: int
    misses: tuple[Miss, ...]


def compare(folders: Iterable[Path]) -> Comparison:
    """Every prototype in the folders with all documents in them that speak of it."""
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    documents = {path: _text(path) for path in paths if path.suffix == ".md"}
    headers = (parse(_text(path), path.name) for path in paths if path.suffix == ".h")
    declared = _first_phases(found for header in headers for found in header)
    code = (prototypes_in(text, _BY_DOCUMENT) for text in documents.values())
    declared = _first_phases(found for block in code for found in block) | declared
    said = _said(documents)
    pairs = [
        (name, found, document, tensors)
        for name, prototypes in declared.items()
        for found in prototypes
        for document, stated in said.get(name, {}).items()
        if (tensors := _tensors(name, found, stated))
    ]
    return Comparison(
        operators=len(declared),
        compared=len({name for name, *_ in pairs}),
        by_document=len({name for name, found, *_ in pairs if found.source == _BY_DOCUMENT}),
        tensors=len({(name, tensor) for name, _, _, tensors in pairs for tensor in tensors}),
        misses=tuple(dict.fromkeys(_misses(pairs))),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _first_phases(found: Iterable[Found]) -> dict[str, list[Found]]:
    """First phases by operator: folders of experiments may declare one in another way."""
    different = {
        (one.name.removesuffix(_PHASE_ONE), one.parameters): one
        for one in found
        if one.name.endswith(_PHASE_ONE)
    }
    phases: dict[str, list[Found]] = {}
    for (operator, _), one in different.items():
        phases.setdefault(operator, []).append(one)
    return phases


def _said(documents: dict[Path, str]) -> dict[str, dict[Path, Stated]]:
    """What documents say, by operator and document."""
    said: dict[str, dict[Path, Stated]] = {}
    for path, text in documents.items():
        for operator, stated in stated_in(text).items():
            said.setdefault(operator, {})[path] = stated
    return said


def _tensors(
    operator: str, found: Found, stated: Stated
) -> dict[str, tuple[TensorRole, TensorRole]]:
    """Our role and the document's, of each tensor that both name."""
    ours = roles_of(operator, {one.name: one.c_type for one in found.parameters[:-2]})
    plain = {_plain(name): role for name, role in stated.items()}
    theirs = {name: stated.get(name) or plain.get(_plain(name)) for name in ours}
    return {name: (ours[name], role) for name, role in theirs.items() if role}


def _plain(name: str) -> str:
    """Documents spell the names of headers in a few ways."""
    return name.replace("_", "").removesuffix("Optional").lower()


def _misses(
    pairs: Sequence[tuple[str, Found, Path, dict[str, tuple[TensorRole, TensorRole]]]],
) -> Iterator[Miss]:
    for operator, _, document, tensors in pairs:
        for tensor, (ours, theirs) in tensors.items():
            if ours is not theirs and (operator, tensor) not in DOCUMENTS_ERR:
                yield Miss(operator, tensor, ours, theirs, document.name)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    found = compare(parser.parse_args().folders)
    for miss in sorted(found.misses, key=lambda miss: (miss.meaning, miss.operator, miss.tensor)):
        sides = f"ours {miss.ours.value}, theirs {miss.theirs.value}"
        print(f"{miss.meaning}: {miss.operator} {miss.tensor}: {sides} ({miss.document})")
    counts = Counter(miss.meaning for miss in found.misses)
    print(
        f"{found.compared} of {found.operators} operators ({found.by_document} of them as a "
        f"document declares them), {found.tensors} tensors compared"
    )
    for meaning, count in sorted(counts.items()):
        print(f"{meaning}: {count}")
    return 1 if counts[LOST] or counts[NOT_SENT] else 0


if __name__ == "__main__":
    sys.exit(_main())
