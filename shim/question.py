"""The questions on a terminal, and the progress of long work. Plain lines in, so that any terminal will do."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpt_run.capture.undo.items import Choices
from ckpt_run.shim import card_verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckpt_run.capture.model import Path
    from ckpt_run.capture.undo.items import Held

_PROGRESS_FROM = 200
"""Work of fewer steps is over before anybody could read its progress."""


class Answer:
    """What a person decided about held files, as choices to add."""

    def __init__(
        self, *, keep: frozenset[Path] = frozenset(), force: frozenset[Path] = frozenset(), rest: bool = False
    ) -> None:
        """Hold the three."""
        self._keep = keep
        self._force = force
        self._rest = rest

    def added_to(self, choices: Choices) -> Choices:
        """The choices with this answer."""
        return Choices(
            only=choices.only,
            keep=choices.keep | self._keep,
            force=choices.force | self._force,
            rest=choices.rest or self._rest,
        )


def can_ask() -> bool:
    """Say whether a person is there to answer: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(prompt: str) -> str | None:
    """One line, in lower case; None at the end of the input or on Ctrl-C, which both mean: do nothing."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        line = ""
    if not line:
        sys.stderr.write("\n")
        return None
    return line.strip().lower()


def _say(lines: Sequence[str]) -> None:
    sys.stderr.write("\n".join(lines) + "\n")


def about_plan(lines: Sequence[str], doubtful: Sequence[Path]) -> frozenset[Path] | None:
    """Show what happens and ask once; gives the paths to keep, None for: do nothing."""
    _say(lines)
    if doubtful:
        _say([card_verbs.by_time_line(doubtful)])
    while True:
        answer = _ask(card_verbs.PLAIN_QUESTION if doubtful else card_verbs.PLAIN_QUESTION_SHORT)
        if answer in {"y", "yes"}:
            return frozenset()
        if answer in {None, "", "n", "no"}:
            return None
        if answer == "c" and doubtful:
            return _checked(doubtful)


def _checked(paths: Sequence[Path]) -> frozenset[Path] | None:
    """Let a person choose among the paths by number."""
    _say([card_verbs.CHECKLIST_TITLE, *card_verbs.checklist(paths)])
    while True:
        answer = _ask(card_verbs.CHECKLIST_QUESTION)
        if answer is None:
            return None
        numbers = chosen_numbers(answer, len(paths))
        if numbers is not None:
            return frozenset(paths[number - 1] for number in numbers)


def chosen_numbers(text: str, most: int) -> set[int] | None:
    """Read `1 3-5, 8`; None when it is anything else, or a number is not from 1 to `most`."""
    found: set[int] = set()
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            return None
        low, high = int(first), int(last) if dash else int(first)
        if not 1 <= low <= high <= most:
            return None
        found.update(range(low, high + 1))
    return found


def about_held(held: Sequence[Held]) -> Answer | None:
    """Show the files that stopped an undo and ask what to do with exactly these; None for: do nothing."""
    _say([card_verbs.HELD_TITLE, *card_verbs.held_lines(held)])
    paths = frozenset(one.path for one in held)
    while True:
        answer = _ask(card_verbs.HELD_QUESTION)
        if answer is None or answer in {"n", "no"}:
            return None
        if answer in {"", "k"}:
            return Answer(keep=paths)
        if answer == "u":
            return Answer(force=frozenset(one.path for one in held if one.forced is not None))
        if answer == "r":
            return Answer(rest=True)


@contextmanager
def progress(steps: int) -> Iterator[Callable[[int, int], None] | None]:
    """Show how far long work is, on a terminal; gives what to call with (done, in all), None where nobody looks."""
    if steps < _PROGRESS_FROM or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=steps)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@contextmanager
def counting() -> Iterator[Callable[[int, int], None] | None]:
    """As `progress`, for work whose length is known only once it runs."""
    with progress(_PROGRESS_FROM) as advance:
        yield advance


def is_agreed(prompt: str) -> bool:
    """Ask for a plain yes; anything else means no."""
    return _ask(prompt) in {"y", "yes"}
