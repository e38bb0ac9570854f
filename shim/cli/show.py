"""`ckpt show`: one point's card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt_run.capture.model import Kind
from ckpt_run.shim import card_verbs
from ckpt_run.shim.cli.here import add_project_option, opened
from ckpt_run.shim.cli.output import is_terminal, point_json, print_json, print_text
from ckpt_run.shim.cli.points import asked_point, counts_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from ckpt_run.capture.model import Point

_STYLES = {"title": "bold", "gap": "yellow", "note": "dim", "": ""}


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("id", nargs="?", help=card_verbs.ID)
    parser.add_argument("--json", action="store_true", help=card_verbs.JSON)
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the card. Raises CkptError for an id that is not known, or where nothing is recorded."""
    with opened(options) as here:
        point = asked_point(here, options.id)
        lines = {key: value for one in point.runs for key, value in counts_of(here, one).items()}
    if options.json:
        print_json(point_json(point, lines))
        return 0
    print_text(_styled(card_verbs.point_card(point, _in_words(point, lines))))
    return 0


def _in_words(
    point: Point, lines: Mapping[tuple[str, bytes], tuple[int, int] | None]
) -> dict[tuple[str, bytes], tuple[int, int] | str]:
    """The line counts, with a word where there are none: binary, or bytes that are not kept."""
    found: dict[tuple[str, bytes], tuple[int, int] | str] = {}
    for one in point.runs:
        for change in one.changes:
            key = (one.id, change.path)
            if Kind.FILE not in (change.before.kind, change.after.kind):
                continue
            found[key] = card_verbs.UNKNOWN_LINES if key not in lines else lines[key] or card_verbs.BINARY
    return found


def _styled(rows: Sequence[tuple[str, str]]) -> str:
    if not is_terminal():
        return "\n".join(line for _, line in rows)
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    with console.capture() as capture:
        for style, line in rows:
            console.print(Text(line, style=_STYLES[style]))
    return capture.get()
