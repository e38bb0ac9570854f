"""`ckpt purge`: forgets a path, a point, or everything, for good."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpt_run.capture import project as projects
from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.capture.spool import has_live_run, remove_folder
from ckpt_run.capture.store import purge_all
from ckpt_run.capture.undo.locks import locked
from ckpt_run.shim import card, card_verbs, question
from ckpt_run.shim.cli.here import add_project_option, folder_asked, found, inside, opened, top_of
from ckpt_run.shim.cli.output import print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ckpt_run.capture.model import Point, Run
    from ckpt_run.capture.project import Project
    from ckpt_run.shim.cli.here import Here

EXIT_USAGE = 2
EXIT_STOPPED = 3


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.add_argument("what", nargs="?", help="a path, or an id")
    parser.add_argument("--all", action="store_true", help="everything that is kept of this project")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask whether to go ahead")
    add_project_option(parser)
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Forget; gives 2 unless exactly one of a path, an id and `--all` is named, 3 where nobody agreed."""
    if (options.what is None) != options.all:
        options.parser.print_usage()
        return EXIT_USAGE
    if options.all:
        return _purge_everything(options)
    with opened(options) as here:
        named = _named(here, options.what)
        if named is None:
            path = inside(here, options.what)
            if not path and not _is_agreed(options):
                return EXIT_STOPPED
            with _forgetting(here.project):
                facts = [here.store.purge_path(path)]
        else:
            point, runs = named
            if len(runs) < len(point.runs):
                card.warn(f"ckpt: {card_verbs.part_of_point(options.what, point.id)}")
                return EXIT_USAGE
            with _forgetting(here.project):
                facts = [here.store.purge_point(one) for one in (*_taking_back(here, runs), point.id)]
    print_text(card_verbs.pruned(facts))
    return 0


def _named(here: Here, word: str) -> tuple[Point, list[Run]] | None:
    """The point that the word names; None for a path. A file whose name only begins an id is a path."""
    is_path = os.path.lexists(os.path.join(here.base, os.fsencode(word)))
    try:
        point, runs = found(here, word)
    except CkptError as error:
        if error.fault == Fault.UNKNOWN_ID or is_path:
            return None
        raise
    return None if is_path and word not in (point.id, runs[0].id) else (point, runs)


def _taking_back(here: Here, runs: list[Run]) -> list[str]:
    """The points of undos and redos of these runs: they hold the same bytes."""
    names = {one.id for one in runs}
    names |= {f"{name}/part" for name in names}
    points = []
    for later in reversed(here.store.runs_after(runs[0].id)):
        if names & {later.redoes, *later.undoes}:
            names.add(later.id)
            points.append(later.point_id)
    return points


def _is_agreed(options: argparse.Namespace) -> bool:
    if options.yes:
        return True
    if not question.can_ask():
        card.warn(f"ckpt: {card_verbs.NEEDS_YES}")
        return False
    return question.is_agreed(card_verbs.UNSURE_YES)


def _purge_everything(options: argparse.Namespace) -> int:
    """Remove the project's folder in the store; a damaged one too. Refused while a run or an undo is in progress."""
    project = projects.locate(top_of(folder_asked(options)), os.environb)
    if not os.path.isdir(project.folder):
        raise CkptError(Fault.NO_POINTS)
    if not _is_agreed(options):
        return EXIT_STOPPED
    with _forgetting(project):
        purge_all(project.folder)
    print_text(card_verbs.FORGOTTEN)
    return 0


@contextmanager
def _forgetting(project: Project) -> Iterator[None]:
    """Within it no run holds copies, and none that one leaves for the next are there. Raises CkptError."""
    with locked(project.folder):
        if has_live_run(project):
            raise CkptError(Fault.RUN_IN_PROGRESS)
        remove_folder(project.memory)
        os.makedirs(project.memory + b"/packs", 0o700)
        os.chmod(project.memory, 0o700)
        yield
