"""How verbs print: JSON as the design has it, text through a pager and in colour only on a terminal."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ckpt_run.capture.errors import CkptError
    from ckpt_run.capture.model import Change, Point, Run


def print_json(value: object) -> None:
    """Print one JSON document. Names that are no UTF-8 stand in it as Python's `os.fsdecode` has them."""
    import json

    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def print_fault(error: CkptError) -> None:
    """Print a fault as JSON: its name, path, cause and facts."""
    facts = {name: _plain(value) for name, value in error.facts.items()}
    path = None if error.path is None else os.fsdecode(error.path)
    print_json({"error": error.fault, "path": path, "cause": error.cause, **facts})


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return os.fsdecode(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def is_terminal() -> bool:
    """Say whether a person watches stdout."""
    return sys.stdout.isatty()


def is_coloured() -> bool:
    """Say whether stdout is a terminal that shows colours to a person who wants them (no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def print_text(text: str) -> None:
    """Print a text; on a terminal through the pager where it is longer than the screen."""
    text = text if text.endswith("\n") else text + "\n"
    if not is_terminal() or text.count("\n") < os.get_terminal_size(sys.stdout.fileno()).lines:
        sys.stdout.write(text)
        return
    import pydoc  # 30 ms, which no script and no short answer has to wait for

    os.environ.setdefault("LESS", "FRX")
    pydoc.pager(text)


_STYLES = {"title": "bold", "gap": "yellow", "note": "dim"}


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print lines, each with the name of its style before it: title, gap, note, or none."""
    if not is_coloured():
        print_text("\n".join(line for _, line in rows))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    with console.capture() as capture:
        for style, line in rows:
            console.print(Text(line, style=_STYLES.get(style, "")))
    print_text(capture.get())


def stamp(time_ns: int | None) -> str | None:
    """A time in nanoseconds since the epoch as `2026-01-31T12:00:00.000Z`."""
    if time_ns is None:
        return None
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ns // 1_000_000_000))
    return f"{moment}.{time_ns // 1_000_000 % 1000:03d}Z"


def change_json(change: Change, lines: tuple[int, int] | None) -> dict[str, Any]:
    """One change as the design's JSON."""
    added, removed = lines if lines is not None else (None, None)
    return {
        "path": os.fsdecode(change.path),
        "change": change.name,
        "undo": change.undo,
        "reason": change.reason,
        "numbers": change.numbers,
        "by": change.by,
        "known": change.known,
        "lines_added": added,
        "lines_removed": removed,
    }


def point_json(point: Point, lines: dict[tuple[str, bytes], tuple[int, int] | None]) -> dict[str, Any]:
    """One point as the design's JSON; a point of several runs tells its first command, and its last end."""
    first, last = point.runs[0], point.runs[-1]
    return {
        "id": point.id,
        "runs": [run.id for run in point.runs],
        "command": [os.fsdecode(word) for word in first.argv],
        "prompt": point.prompt,
        "label": first.label,
        "cwd": os.fsdecode(first.cwd),
        "exit_code": last.exit_code,
        "started_at": stamp(first.started_ns),
        "ended_at": stamp(last.ended_ns),
        "state": _state(point.runs),
        "coverage": point.coverage,
        "git_moved": list(dict.fromkeys(name for run in point.runs for name in run.git_moved)),
        "changes": [
            {**change_json(change, lines.get((run.id, change.path))), "run": run.id}
            for run in point.runs
            for change in run.changes
        ],
        "background": [{"pid": pid, "name": name} for run in point.runs for pid, name in run.background],
    }


def _state(runs: list[Run]) -> str:
    return "interrupted" if any(run.state == "interrupted" for run in runs) else runs[-1].state
