"""`ckpt diff`: what a point changed, before against after, as a unified diff."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ckpt_run.capture.compare import line_counts, patch
from ckpt_run.capture.undo.items import is_covered
from ckpt_run.shim import card, card_verbs
from ckpt_run.shim.cli.here import add_project_option, inside, opened
from ckpt_run.shim.cli.output import is_terminal, print_text
from ckpt_run.shim.cli.points import asked_point, pair_of

if TYPE_CHECKING:
    import argparse

    from ckpt_run.capture.compare import Pair
    from ckpt_run.capture.model import Change
    from ckpt_run.shim.cli.here import Here

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 27), *range(28, 32), 127)}


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("id", nargs="?", help=card_verbs.ID)
    parser.add_argument("paths", nargs="*", metavar="PATH", help=card_verbs.DIFF_PATHS)
    parser.add_argument("--stat", action="store_true", help=card_verbs.STAT)
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the diff. A first word that is no id but names a file of the project is a path of the newest point."""
    with opened(options) as here:
        words = list(options.paths)
        point_id = options.id
        if point_id is not None and os.path.lexists(point_id) and not _is_id(here, point_id):
            words.insert(0, point_id)
            point_id = None
        point = asked_point(here, point_id)
        only = frozenset(inside(here, word) for word in words)
        changes = [
            change for one in point.runs for change in one.changes if not only or is_covered(change.path, only)
        ]
        pairs = [pair for change in changes if (pair := pair_of(here, change)) is not None]
        _print(options, changes, pairs)
    return 0


def _is_id(here: Here, text: str) -> bool:
    from ckpt_run.capture.errors import CkptError

    try:
        here.store.find(text)
    except CkptError:
        return False
    return True


def _print(options: argparse.Namespace, changes: list[Change], pairs: list[Pair]) -> None:
    known = {pair.path for pair in pairs}
    for change in changes:
        if change.path not in known:
            card.warn(card_verbs.no_diff(change))
    if options.stat:
        counts = line_counts(pairs)
        by = {change.path: change.by for change in changes}
        rows = [card_verbs.stat_line(path, counts[path], by[path]) for path in sorted(counts)]
        print_text("\n".join(rows))
        return
    text = patch(pairs, is_coloured=is_terminal())
    if not is_terminal():
        sys.stdout.buffer.write(text)
        return
    # What a file holds must not reach the terminal as a command; Git's own colours begin with ESC [ and end with m.
    shown = text.decode("utf-8", "replace").translate(_ESCAPES)
    print_text(card_verbs.only_colours(shown))
