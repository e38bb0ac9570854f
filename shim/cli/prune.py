"""`ckpt prune`: forgets the oldest points."""

from __future__ import annotations

from ckpt_run.shim import card_verbs
from ckpt_run.shim.cli.here import add_project_option, opened
from ckpt_run.shim.cli.output import print_text
from ckpt_run.shim.question import counting

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument(
        "--points", type=int, metavar="N", help="how many points to keep (default: the setting points_max)"
    )
    parser.add_argument(
        "--bytes", type=int, metavar="N", help="how many bytes to keep (default: the setting project_bytes_max)"
    )
    add_project_option(parser)
    parser.set_defaults(run=run, says_without_points=card_verbs.NO_LOG)


def run(options: argparse.Namespace) -> int:
    """Prune, and say what was forgotten."""
    with opened(options) as here, counting() as progress:
        points = here.settings.points_max if options.points is None else max(0, options.points)
        size = here.settings.project_bytes_max if options.bytes is None else max(0, options.bytes)
        facts = here.store.prune(points, size, progress)
    print_text(card_verbs.pruned([facts]))
    return 0
