"""The words of the design as small classes: entry, change, run, point. No I/O, nothing heavy imported.

Paths are `bytes` relative to the project's top level, without a leading or trailing slash.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Path = bytes
"""A path inside a project: bytes, relative to its top level, `/` between names."""

Fingerprint = tuple[int, int, int, int, int, int, int, int]
"""What lstat says of a path: (dev, ino, mode, size, mtime_ns, ctime_ns, uid, gid).

`size` is in bytes, and 0 for a directory (its size is the file system's business); the times are in
nanoseconds, and 0 for a directory (they change with its children).
"""


class Kind:
    """What stands at a path."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    SPECIAL = "special"
    ABSENT = "absent"


class Entry:
    """What stands at a path: its kind, permission bits, size in bytes, digest of its bytes, link target.

    `mode` holds the twelve permission bits of a file or directory, None where they are not known.
    `digest` is the BLAKE2b-256 of a file's bytes, None where nobody read them. `oid` names the Git blob that
    holds the same bytes, when one is known to. `owner` is (uid, gid), None where not known; it never decides
    whether two entries are equal.
    """

    __slots__ = ("digest", "kind", "mode", "oid", "owner", "size", "target")

    def __init__(
        self,
        kind: str,
        *,
        mode: int | None = None,
        size: int | None = None,
        digest: bytes | None = None,
        target: bytes | None = None,
        oid: str | None = None,
        owner: tuple[int, int] | None = None,
    ) -> None:
        """Hold the facts as given; no fact is derived."""
        self.kind = kind
        self.mode = mode
        self.size = size
        self.digest = digest
        self.target = target
        self.oid = oid
        self.owner = owner

    @property
    def content(self) -> tuple[str, bytes | None]:
        """What decides whether two entries hold the same: the kind with the digest or the link's target."""
        return (self.kind, self.target if self.kind == Kind.LINK else self.digest)

    def _key(self) -> tuple[str, bytes | None, int | None]:
        return (*self.content, self.mode)

    def __eq__(self, other: object) -> bool:
        """Say whether both hold the same content and permission bits."""
        return isinstance(other, Entry) and self._key() == other._key()

    def __hash__(self) -> int:
        """Follow equality."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Show the facts that matter in a failed test."""
        digest = self.digest.hex()[:8] if self.digest else None
        mode = None if self.mode is None else oct(self.mode)
        return f"Entry({self.kind}, mode={mode}, size={self.size}, digest={digest}, target={self.target!r})"


ABSENT = Entry(Kind.ABSENT)


class By:
    """Which witness says who changed a file."""

    TRACED = "traced"
    EDITOR = "editor"
    TIME = "time"


class Known:
    """How the before-entry of a change was known."""

    GIT = "git"
    COPY = "copy"
    FIRST_TOUCH = "first_touch"
    SURVEY = "survey"


class Change:
    """One path that a run changed: before-entry, after-entry, by whom, and why Undo leaves it (if it does).

    `reason` is a name of `reasons.Reason`, None when Undo can put the path back; `numbers` are the facts that
    the reason's sentence needs. `lines` is (added, removed) for text, None for anything else.
    """

    __slots__ = ("after", "before", "by", "known", "lines", "numbers", "path", "reason")

    def __init__(
        self,
        path: Path,
        before: Entry,
        after: Entry,
        *,
        by: str = By.TIME,
        known: str | None = None,
        reason: str | None = None,
        numbers: Mapping[str, int | str] | None = None,
        lines: tuple[int, int] | None = None,
    ) -> None:
        """Hold the facts as given."""
        self.path = path
        self.before = before
        self.after = after
        self.by = by
        self.known = known
        self.reason = reason
        self.numbers = dict(numbers or {})
        self.lines = lines

    @property
    def name(self) -> str:
        """The change in one word: `created`, `deleted`, `type`, `modified`, `mode`."""
        if self.before.kind != self.after.kind:
            if self.before.kind == Kind.ABSENT:
                return "created"
            return "deleted" if self.after.kind == Kind.ABSENT else "type"
        return "mode" if self.before.content == self.after.content and self.before.digest else "modified"

    @property
    def undo(self) -> str:
        """What Undo does with it: `restore`, `recover`, `remove`, `chmod` or `leave`."""
        if self.reason is not None:
            return "leave"
        if self.before.kind == Kind.DIRECTORY and self.after.kind == Kind.DIRECTORY:
            return "chmod"
        return {"created": "remove", "deleted": "recover", "mode": "chmod"}.get(self.name, "restore")

    def __repr__(self) -> str:
        """Show the facts that matter in a failed test."""
        return f"Change({self.path!r}, {self.before!r} -> {self.after!r}, reason={self.reason})"


class State:
    """How a run stands."""

    RUNNING = "running"
    ENDED = "ended"
    INTERRUPTED = "interrupted"


class Coverage:
    """How much of a point Undo can put back."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NONE = "none"


class Run:
    """One wrapped command: argv, cwd, start, end, exit code, changes.

    Times are in nanoseconds since the epoch. `cwd` is absolute. `exit_code` is None for a run that was
    interrupted. `undoes` holds the ids of the runs that this run undid, when it is an undo, and `redoes` the id
    of the undo that it took back. `git_moved` names what moved in Git (`commit`, `checkout`, `stash`, …).
    `background` lists (pid, name) of processes of the command that were still alive when it ended.
    """

    __slots__ = (
        "argv",
        "background",
        "changes",
        "cwd",
        "ended_ns",
        "exit_code",
        "git_moved",
        "id",
        "label",
        "point_id",
        "redoes",
        "session",
        "started_ns",
        "state",
        "turn",
        "undoes",
    )

    def __init__(
        self,
        run_id: str,
        argv: Sequence[bytes],
        cwd: bytes,
        started_ns: int,
        *,
        ended_ns: int | None = None,
        exit_code: int | None = None,
        state: str = State.RUNNING,
        changes: Sequence[Change] = (),
        git_moved: Sequence[str] = (),
        background: Sequence[tuple[int, str]] = (),
        label: str | None = None,
        session: str | None = None,
        turn: str | None = None,
        point_id: str | None = None,
        undoes: Sequence[str] = (),
        redoes: str | None = None,
    ) -> None:
        """Hold the facts as given; a run that no turn groups is a point of its own, with the same id."""
        self.id = run_id
        self.argv = list(argv)
        self.cwd = cwd
        self.started_ns = started_ns
        self.ended_ns = ended_ns
        self.exit_code = exit_code
        self.state = state
        self.changes = list(changes)
        self.git_moved = list(git_moved)
        self.background = list(background)
        self.label = label
        self.session = session
        self.turn = turn
        self.point_id = point_id or run_id
        self.undoes = list(undoes)
        self.redoes = redoes

    @property
    def coverage(self) -> str:
        """How much of this run Undo can put back."""
        return coverage_of(self.changes)


class Point:
    """A recovery point: one run, or all runs of one turn, oldest first."""

    __slots__ = ("id", "prompt", "runs", "session", "started_ns")

    def __init__(
        self,
        point_id: str,
        runs: Sequence[Run],
        *,
        started_ns: int,
        prompt: str | None = None,
        session: str | None = None,
    ) -> None:
        """Hold the facts as given."""
        self.id = point_id
        self.runs = list(runs)
        self.started_ns = started_ns
        self.prompt = prompt
        self.session = session

    @property
    def coverage(self) -> str:
        """How much of this point Undo can put back."""
        return coverage_of([change for run in self.runs for change in run.changes])


def coverage_of(changes: Sequence[Change]) -> str:
    """Say how much of these changes Undo can put back: all, some, or none of them."""
    left = sum(1 for change in changes if change.reason is not None)
    if not left:
        return Coverage.COMPLETE
    return Coverage.NONE if left == len(changes) else Coverage.PARTIAL


class Step:
    """One path of an undo: what stands there now, what shall stand there, and the sibling's name on the way."""

    __slots__ = ("now", "path", "target", "temporary")

    def __init__(self, path: Path, now: Entry, target: Entry, temporary: bytes) -> None:
        """Hold the facts; `temporary` is a bare name in the folder of `path`."""
        self.path = path
        self.now = now
        self.target = target
        self.temporary = temporary


class UndoRecord:
    """An undo that is open in the store: durable before its first write, closed with its run's record.

    `run` is the undo as a run of its own (its changes are `now -> target` of each step).
    """

    __slots__ = ("id", "run", "steps", "top")

    def __init__(self, undo_id: str, top: bytes, run: Run, steps: Sequence[Step]) -> None:
        """Hold the facts; `top` is the project's absolute top level."""
        self.id = undo_id
        self.top = top
        self.run = run
        self.steps = list(steps)
