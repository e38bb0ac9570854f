"""`ckpt diff`: what a point changed, before against after, as a unified diff."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ckpt_run.capture.compare import patch
from ckpt_run.capture.errors import CkptError
from ckpt_run.capture.undo.items import is_covered
from ckpt_run.shim import card, card_verbs
from ckpt_run.shim.cli.here import add_project_option, inside, opened
from ckpt_run.shim.cli.output import is_coloured, is_terminal, print_text
from ckpt_run.shim.cli.points import asked_point, counts_of, folded, holds_lines, is_one_tree, pair_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ckpt_run.capture.compare import Pair
    from ckpt_run.capture.model import Change, Run
    from ckpt_run.shim.cli.here import Here

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 27), *range(28, 32), *range(127, 160))}


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("id", nargs="?", help="a point or a run, or the beginning of its id (default: the newest)")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these; a folder stands for all below it")
    parser.add_argument("--stat", action="store_true", help="only the number of lines, and who changed the file")
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the diff. A first word that is no id but names a file of the project is a path of the newest point."""
    with opened(options) as here:
        words = list(options.paths)
        point_id = options.id
        if point_id is not None and not _is_id(here, point_id) and _is_path(here, point_id):
            words.insert(0, point_id)
            point_id = None
        point = asked_point(here, point_id)
        only = frozenset(inside(here, word) for word in words)
        groups = _groups(point.runs, only)
        if options.stat:
            _print_counts(here, [change for group in groups for change in group])
            return 0
        pairs = [[pair for change in group if (pair := _pair(here, change)) is not None] for group in groups]
    _print_patches(pairs)
    return 0


def _is_id(here: Here, text: str) -> bool:
    try:
        here.store.find(text)
    except CkptError:
        return False
    return True


def _is_path(here: Here, word: str) -> bool:
    """Say whether the word names something that is there, or that a run has changed."""
    if os.path.lexists(os.path.join(here.base, os.fsencode(word))):
        return True
    try:
        return bool(here.store.runs_on(inside(here, word)))
    except CkptError:
        return False


def _groups(runs: Sequence[Run], only: frozenset[bytes]) -> list[list[Change]]:
    """The changes to show, those of all runs in one where they can stand together, else run by run."""
    whole = folded(runs)
    groups = [whole] if is_one_tree(whole) else [one.changes for one in runs]
    return [
        sorted((change for change in group if not only or is_covered(change.path, only)), key=lambda one: one.path)
        for group in groups
    ]


def _pair(here: Here, change: Change) -> Pair | None:
    pair = pair_of(here, change)
    if pair is None:
        card.warn(card_verbs.no_diff(change))
    return pair


def _print_counts(here: Here, changes: Sequence[Change]) -> None:
    counts = counts_of(here, changes)
    rows = []
    for change in changes:
        if holds_lines(change):
            lines = (
                card_verbs.UNKNOWN_LINES if change.path not in counts else counts[change.path] or card_verbs.BINARY
            )
            rows.append(card_verbs.stat_line(change.path, lines, change.by))
    if rows:
        print_text("\n".join(rows))


def _print_patches(groups: Sequence[Sequence[Pair]]) -> None:
    text = b"".join(patch(pairs, is_coloured=is_coloured()) for pairs in groups)
    if not text:
        return
    if not is_terminal():
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        return
    # What a file holds must not reach the terminal as a command; Git's own colours begin with ESC [ and end with m.
    shown = text.decode("utf-8", "replace").translate(_ESCAPES)
    print_text(card_verbs.only_colours(shown))
