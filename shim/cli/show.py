"""`ckpt show`: one point's card."""

from __future__ import annotations

from ckpt_run.capture.model import Kind
from ckpt_run.shim import card_verbs
from ckpt_run.shim.cli.here import add_project_option, opened
from ckpt_run.shim.cli.output import point_json, print_json, print_rows
from ckpt_run.shim.cli.points import asked_point, counts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ckpt_run.capture.model import Point


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("id", nargs="?", help="a point or a run, or the beginning of its id (default: the newest)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the card. Raises CkptError for an id that is not known, or where nothing is recorded."""
    with opened(options) as here:
        point = asked_point(here, options.id)
        lines = {
            (one.id, path): counts for one in point.runs for path, counts in counts_of(here, one.changes).items()
        }
    if options.json:
        print_json(point_json(point, lines))
        return 0
    print_rows(card_verbs.point_card(point, _in_words(point, lines)))
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
