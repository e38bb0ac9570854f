"""`ckpt recover`: finishes what a crash left open: runs whose wrapper died, undos that were cut off."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ckpt_run.capture import project as projects
from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.shim import card_verbs, config
from ckpt_run.shim.cli.here import add_project_option, opened, top_of
from ckpt_run.shim.cli.output import print_text
from ckpt_run.shim.run import close_interrupted

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Finish it, and say what was done; gives 1 while something is still open."""
    folder = os.path.abspath(os.fsencode(options.project)) if options.project else os.getcwdb()
    project = projects.locate(top_of(folder), os.environb)
    lines = []
    if os.path.isdir(project.runs):
        closed = close_interrupted(project, os.environb, config.load(os.environb))
        lines = [card_verbs.closed_run(one) for one in closed]
    try:
        with opened(options) as here:
            still_open = bool(here.store.open_undos())
    except CkptError as error:
        if error.fault != Fault.NO_POINTS:
            raise
        still_open = False
    print_text("\n".join(lines) or card_verbs.nothing_open())
    return int(still_open)
