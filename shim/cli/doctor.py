"""`ckpt doctor`: what works here, what does not, and what that means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from ckpt_run.capture import project as projects
from ckpt_run.capture.errors import CkptError
from ckpt_run.shim import card, card_verbs, config
from ckpt_run.shim.cli.here import folder_asked, top_of
from ckpt_run.shim.cli.output import print_text

if TYPE_CHECKING:
    import argparse

_OLDEST_GIT = (2, 30)


def add_arguments(parser: argparse.ArgumentParser, _verb: str) -> None:
    """The verb's words."""
    parser.set_defaults(run=run)


def run(_options: argparse.Namespace) -> int:
    """Look at everything; gives 1 when something that is needed is missing."""
    findings = [_git(), _store(), _command(), _witness()]
    print_text("\n".join(card_verbs.doctor_line(is_fine, text) for is_fine, text in findings))
    return int(any(is_fine is False for is_fine, _ in findings))


def _git() -> tuple[bool, str]:
    try:
        words = subprocess.run(["git", "version"], capture_output=True, text=True, check=True).stdout.split()
        numbers = tuple(int(number) for number in words[2].split(".")[:2])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError) as error:
        return False, card_verbs.doctor_git(str(error), is_new_enough=False)
    return numbers >= _OLDEST_GIT, card_verbs.doctor_git(words[2], is_new_enough=numbers >= _OLDEST_GIT)


def _store() -> tuple[bool, str]:
    try:
        home = projects.home(os.environb)
        _refuse_inside_project()
    except CkptError as error:
        return False, card_verbs.doctor_store(error.path or b"", card.fault(error))
    above = home
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    is_writable = os.access(above, os.W_OK)
    return is_writable, card_verbs.doctor_store(home, None if is_writable else card_verbs.NOT_WRITABLE)


def _refuse_inside_project() -> None:
    """Raise CkptError where the store would lie inside the project around the current folder."""
    try:
        top = top_of(folder_asked(None))
    except CkptError:
        return  # outside any project, any store will do
    projects.locate(top, os.environb)


def _command() -> tuple[bool | None, str]:
    first = shutil.which("ckpt")
    mine = os.path.realpath(sys.argv[0])
    found = None if first is None else os.path.realpath(first)
    text = card_verbs.doctor_command(os.fsencode(mine), None if found is None else os.fsencode(found))
    return (True if found == mine else None), text


def _witness() -> tuple[bool | None, str]:
    from ckpt_run.capture import witness

    verdict = witness.probe()
    trace = config.load(os.environb).trace
    return (True if verdict.works and trace != "never" else None), card_verbs.doctor_witness(verdict, trace)
