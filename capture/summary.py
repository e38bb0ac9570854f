"""What the store tells beside points and runs: light rows for a log, its use, what was pruned, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from .model import State


class RunSummary:
    """One run without its changes: `changed` paths, of which Undo leaves `left`; `undone` says how it stands now."""

    __slots__ = (
        "argv",
        "changed",
        "ended_ns",
        "exit_code",
        "id",
        "is_redo",
        "is_undo",
        "label",
        "left",
        "point_id",
        "started_ns",
        "state",
        "undone",
    )

    def __init__(
        self,
        run_id: str,
        point_id: str,
        argv: Sequence[bytes],
        *,
        label: str | None,
        started_ns: int,
        ended_ns: int | None,
        exit_code: int | None,
        state: str,
        changed: int,
        left: int,
        is_undo: bool,
        is_redo: bool,
        undone: bool,
    ) -> None:
        """Hold the facts as given; times in nanoseconds since the epoch."""
        self.id = run_id
        self.point_id = point_id
        self.argv = list(argv)
        self.label = label
        self.started_ns = started_ns
        self.ended_ns = ended_ns
        self.exit_code = exit_code
        self.state = state
        self.changed = changed
        self.left = left
        self.is_undo = is_undo
        self.is_redo = is_redo
        self.undone = undone


class Summary:
    """One point without its changes: `changed` different paths over all its runs, of which Undo leaves `left`."""

    __slots__ = ("changed", "id", "left", "prompt", "runs", "session", "started_ns")

    def __init__(
        self,
        point_id: str,
        runs: Sequence[RunSummary],
        *,
        prompt: str | None,
        session: str | None,
        started_ns: int,
        changed: int,
        left: int,
    ) -> None:
        """Hold the facts as given; `runs` oldest first, at least one."""
        self.id = point_id
        self.runs = list(runs)
        self.prompt = prompt
        self.session = session
        self.started_ns = started_ns
        self.changed = changed
        self.left = left

    @property
    def argv(self) -> list[bytes]:
        """The first run's command."""
        return self.runs[0].argv

    @property
    def exit_code(self) -> int | None:
        """The last run's exit code."""
        return self.runs[-1].exit_code

    @property
    def state(self) -> str:
        """`interrupted` if any of its runs was, else the last run's state."""
        states = [run.state for run in self.runs]
        return State.INTERRUPTED if State.INTERRUPTED in states else states[-1]

    @property
    def is_undo(self) -> bool:
        """Whether all its runs took something back (and none of them redid it)."""
        return all(run.is_undo and not run.is_redo for run in self.runs)

    @property
    def is_redo(self) -> bool:
        """Whether all its runs took an undo back."""
        return all(run.is_redo for run in self.runs)

    @property
    def undone(self) -> bool:
        """Whether each of its runs is undone now."""
        return all(run.undone for run in self.runs)


class Usage:
    """How much the store holds and may hold; `file_bytes` is what its files take on disk, `bytes` what it counts."""

    __slots__ = ("bytes", "bytes_max", "changes", "file_bytes", "points", "points_max", "runs")

    def __init__(
        self,
        *,
        points: int,
        runs: int,
        changes: int,
        content_bytes: int,
        file_bytes: int,
        points_max: int,
        bytes_max: int,
    ) -> None:
        """Hold the facts as given."""
        self.points = points
        self.runs = runs
        self.changes = changes
        self.bytes = content_bytes
        self.file_bytes = file_bytes
        self.points_max = points_max
        self.bytes_max = bytes_max


class Pruned:
    """What went: points, runs, changes, bytes counted; and the bytes on disk before and after."""

    __slots__ = ("bytes", "changes", "file_bytes_after", "file_bytes_before", "points", "runs")

    def __init__(
        self,
        *,
        points: int,
        runs: int,
        changes: int,
        content_bytes: int,
        file_bytes_before: int,
        file_bytes_after: int,
    ) -> None:
        """Hold the facts as given."""
        self.points = points
        self.runs = runs
        self.changes = changes
        self.bytes = content_bytes
        self.file_bytes_before = file_bytes_before
        self.file_bytes_after = file_bytes_after


class Problem:
    """One thing that `verify` found: what it is, and where.

    `what` is `file` (SQLite's own check; `cause` has its words), `row` (a record that cannot be read), `bytes` (a
    content that is not what its digest says) or `missing` (bytes that a change or an open undo needs are not there).
    """

    FILE = "file"
    ROW = "row"
    BYTES = "bytes"
    MISSING = "missing"

    __slots__ = ("cause", "digest", "path", "run_id", "what")

    def __init__(
        self,
        what: str,
        *,
        cause: str | None = None,
        run_id: str | None = None,
        path: bytes | None = None,
        digest: bytes | None = None,
    ) -> None:
        """Hold the facts as given."""
        self.what = what
        self.cause = cause
        self.run_id = run_id
        self.path = path
        self.digest = digest

    def __repr__(self) -> str:
        """Show the facts that matter in a failed test."""
        return f"Problem({self.what}, cause={self.cause!r}, run={self.run_id}, path={self.path!r})"
