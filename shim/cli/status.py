"""`ckpt status`: what is kept of this project, and the limits."""

from __future__ import annotations

import os

from ckpt_run.shim import card_verbs
from ckpt_run.shim.cli.here import add_project_option, opened
from ckpt_run.shim.cli.output import print_json, print_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_project_option(parser)
    parser.set_defaults(run=run, says_without_points=card_verbs.NO_LOG)


def run(options: argparse.Namespace) -> int:
    """Print the use of the store."""
    with opened(options) as here:
        usage = here.store.usage()
        still_open = len(here.store.open_undos())
    if options.json:
        facts = {name: getattr(usage, name) for name in usage.__slots__}
        places = {"project": os.fsdecode(here.project.top), "store": os.fsdecode(here.project.folder)}
        print_json({**places, **facts, "open_undos": still_open})
    else:
        lines = card_verbs.status_lines(here.project.top, here.project.folder, usage, still_open)
        print_text("\n".join(lines))
    return 0
