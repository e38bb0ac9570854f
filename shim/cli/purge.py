"""`ckpt purge`: forgets a path, a point, or everything, for good."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ckpt_run.capture import project as projects
from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.spool import has_live_run
from ckpt_run.capture.store import purge_all
from ckpt_run.capture.undo.locks import locked
from ckpt_run.shim import card, card_verbs, question
from ckpt_run.shim.cli.here import add_project_option, inside, opened, top_of
from ckpt_run.shim.cli.output import print_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("what", nargs="?", help=card_verbs.PURGE_WHAT)
    parser.add_argument("--all", action="store_true", help=card_verbs.PURGE_ALL)
    parser.add_argument("--yes", "-y", action="store_true", help=card_verbs.YES)
    add_project_option(parser)
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Forget; gives 2 unless exactly one of a path, an id and `--all` is named."""
    if (options.what is None) != options.all:
        options.parser.print_usage()
        return 2
    if options.all:
        return _purge_everything(options)
    with opened(options) as here:
        try:
            point = here.store.find_point(options.what)
        except CkptError as error:
            if error.fault != Fault.UNKNOWN_ID:
                raise
            facts = here.store.purge_path(inside(here, options.what))
        else:
            facts = here.store.purge_point(point.id)
        _forget_memory(here.project)
    print_text(card_verbs.pruned(facts))
    return 0


def _purge_everything(options: argparse.Namespace) -> int:
    """Remove the project's folder in the store; a damaged one too. Refused while a run or an undo is in progress."""
    folder = os.path.abspath(os.fsencode(options.project)) if options.project else os.getcwdb()
    project = projects.locate(top_of(folder), os.environb)
    if not os.path.isdir(project.folder):
        raise CkptError(Fault.NO_POINTS)
    if not options.yes:
        if not question.can_ask():
            card.warn(f"ckpt: {card_verbs.NEEDS_YES}")
            return 3
        if not question.is_agreed(card_verbs.UNSURE_YES):
            return 3
    with locked(project.folder):
        if has_live_run(project):
            raise CkptError(Fault.RUN_IN_PROGRESS)
        _forget_memory(project)
        purge_all(project.folder)
    print_text(card_verbs.FORGOTTEN)
    return 0


def _forget_memory(project: projects.Project) -> None:
    """Remove the copies that one run leaves for the next: they may hold what is to be forgotten."""
    from ckpt_run.capture.spool import remove_folder

    remove_folder(project.memory)
    os.makedirs(project.memory + b"/packs", 0o700)
    os.chmod(project.memory, 0o700)
