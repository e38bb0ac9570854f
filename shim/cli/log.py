"""`ckpt log`: the recovery points, newest first."""

from __future__ import annotations

import os

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.shim import card_verbs
from ckpt_run.shim.cli.here import add_project_option, inside, opened
from ckpt_run.shim.cli.output import print_json, print_rows, print_text, stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from ckpt_run.capture.summary import RunSummary, Summary


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="only runs that changed these, or something below them"
    )
    parser.add_argument("-n", dest="number", type=int, default=20, help="how many points (default: 20; 0: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the points. A project without any is no fault."""
    try:
        with opened(options) as here:
            summaries = here.store.summaries(None if options.number <= 0 or options.paths else options.number)
            if options.paths:
                touching = {one.id for word in options.paths for one in here.store.runs_on(inside(here, word))}
                summaries = [row for row in summaries if touching & {one.id for one in row.runs}]
                summaries = summaries if options.number <= 0 else summaries[: options.number]
    except CkptError as error:
        if error.fault != Fault.NO_POINTS:
            raise
        summaries = []
    if options.json:
        runs = [_run_json(one) for row in summaries for one in reversed(row.runs)]
        print_json({"points": [_point_json(row) for row in summaries], "runs": runs})
    elif summaries:
        print_rows(card_verbs.log_rows(summaries))
    else:
        print_text(card_verbs.NO_LOG)
    return 0


def _point_json(row: Summary) -> dict[str, Any]:
    return {
        "id": row.id,
        "runs": [one.id for one in row.runs],
        "command": [os.fsdecode(word) for word in row.argv],
        "prompt": row.prompt,
        "session": row.session,
        "started_at": stamp(row.started_ns),
        "exit_code": row.exit_code,
        "changed": row.changed,
        "left": row.left,
        "state": row.state,
        "undone": row.undone,
        "is_undo": row.is_undo,
        "is_redo": row.is_redo,
    }


def _run_json(one: RunSummary) -> dict[str, Any]:
    return {
        "id": one.id,
        "point": one.point_id,
        "command": [os.fsdecode(word) for word in one.argv],
        "label": one.label,
        "started_at": stamp(one.started_ns),
        "ended_at": stamp(one.ended_ns),
        "exit_code": one.exit_code,
        "changed": one.changed,
        "left": one.left,
        "state": one.state,
        "undone": one.undone,
        "is_undo": one.is_undo,
        "is_redo": one.is_redo,
    }
