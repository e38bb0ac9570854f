"""`ckpt recover`: finishes what a crash left open: runs whose wrapper died, undos that were cut off."""

from __future__ import annotations

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.shim import card_verbs
from ckpt_run.shim.cli.here import add_project_option, opened
from ckpt_run.shim.cli.output import print_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    add_project_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Finish it, and say what was done; gives 1 while something is still open."""
    lines: list[str] = []
    still_open = False
    try:
        with opened(options, tell=lines.append) as here:
            still_open = bool(here.store.open_undos())
    except CkptError as error:
        if error.fault != Fault.NO_POINTS:
            raise
    print_text("\n".join(lines) or card_verbs.nothing_open())
    return int(still_open)
