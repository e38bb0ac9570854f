"""`ckpt verify`: reads everything that is kept, and checks it."""

from __future__ import annotations

from ckpt_run.shim import card, card_verbs
from ckpt_run.shim.cli.here import add_project_option, opened
from ckpt_run.shim.cli.output import print_text
from ckpt_run.shim.question import counting

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    add_project_option(parser)
    parser.set_defaults(run=run, says_without_points=card_verbs.NO_LOG)


def run(options: argparse.Namespace) -> int:
    """Check; gives 1 when something is damaged, naming it."""
    with opened(options) as here, counting() as progress:
        problems = here.store.verify(progress)
    if not problems:
        print_text(card_verbs.SOUND)
        return 0
    card.warn("\n".join([card_verbs.PROBLEMS, *(card_verbs.problem(one) for one in problems)]))
    return 1
