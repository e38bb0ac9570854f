"""What ckpt-run says on stderr, and when; the words are the card's. Imported only where there is something to say."""

from __future__ import annotations

import os

from ckpt_run.shim import card

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.errors import CkptError
    from ckpt_run.capture.model import Run
    from ckpt_run.shim.config import Settings


def not_saved(fault: CkptError, settings: Settings | None, options: Mapping[str, str]) -> bool:
    """Say what could not be saved, and whether the person wants the command to run all the same."""
    runs_anyway = (settings.on_error if settings else options.get("on-error")) == "run"
    card.warn(card.not_saved(fault, runs_anyway=runs_anyway))
    return runs_anyway


def note(run: Run, settings: Settings) -> None:
    """Say what the run changed: all of it on a terminal, else only what needs a warning."""
    if settings.note == "never":
        return
    if settings.note == "always" or os.isatty(2):
        card.warn(card.note(run))
    elif text := card.warnings(run):
        card.warn(text)


def about(options: Mapping[str, str]) -> int:
    """Answer --version and --help on stdout."""
    card.tell(card.version() if "version" in options else card.run_help())
    return 0
