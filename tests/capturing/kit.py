"""A project to capture, a command as a plain function, and a judge that knows what really stood there.

The judge walks the tree itself, before and after. It holds every claim of the record against that: an entry that is
called exact must be what stood there, and nothing that changed may be missing.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ckpt_run.capture import aftermath, baseline, project, record, spool
from ckpt_run.capture.copies import Limits
from ckpt_run.capture.git import Discovery
from ckpt_run.capture.model import Change, Kind, Run
from ckpt_run.capture.worktree import digest_of

SURVEYED = Limits()
BLIND = Limits(survey_files_max=0)
BOTH = [SURVEYED, BLIND]
BOTH_NAMES = ["survey", "git"]
WHOLE = {"ignored_folder", "nested_repository", "git_internal", "too_many", "unreadable"}
"""Reasons under which one listed folder speaks for all below it."""


class Stood(NamedTuple):
    """What the judge saw at a path."""

    kind: str
    mode: int | None
    content: bytes | None


Seen = dict[bytes, Stood]


def snapshot(top: bytes) -> Seen:
    """Everything below the top level but `.git` folders and files, by lstat and bytes."""
    seen: Seen = {}
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        for name in os.listdir(os.path.join(top, folder)):
            if name == b".git":
                continue
            path = os.path.join(folder, name)
            seen[path] = _stood(os.path.join(top, path))
            if seen[path].kind == Kind.DIRECTORY:
                waiting.append(path)
    return seen


def nothing(_top: bytes) -> Seen:
    """For what the judge cannot look into either."""
    return {}


def _stood(place: bytes) -> Stood:
    info = os.lstat(place)
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return Stood(Kind.LINK, None, os.readlink(place))
    if stat.S_ISDIR(info.st_mode):
        return Stood(Kind.DIRECTORY, mode, None)
    if not stat.S_ISREG(info.st_mode):
        return Stood(Kind.SPECIAL, mode, None)
    with open(place, "rb") as file:
        return Stood(Kind.FILE, mode, file.read())


class Found(NamedTuple):
    """What a run's record says, and what the judge saw."""

    changes: dict[bytes, Change]
    contents: dict[bytes, bytes]
    git_moved: list[str]
    before: Seen
    after: Seen

    @property
    def gaps(self) -> dict[bytes, str]:
        """The reasons by path."""
        return {path: change.reason for path, change in self.changes.items() if change.reason is not None}

    @property
    def names(self) -> dict[bytes, str]:
        """The changes in one word, by path."""
        return {path: change.name for path, change in self.changes.items()}

    def bytes_before(self, path: bytes) -> bytes | None:
        """The bytes that the record holds of before."""
        digest = self.changes[path].before.digest
        return None if digest is None else self.contents.get(digest)


class Repo:
    """A Git project in a folder of the test's own."""

    def __init__(self, place: Path, *words: str, init: bool = True) -> None:
        self.path = place
        self.top = os.fsencode(place)
        place.mkdir(parents=True, exist_ok=True)
        if init:
            self.git("init", "-q", "-b", "main", *words)
            self.git("config", "user.name", "T")
            self.git("config", "user.email", "t@example.org")

    def git(self, *words: str | bytes, given: bytes | None = None, check: bool = True) -> bytes:
        """Run git here; gives stdout."""
        done = subprocess.run(["git", *words], cwd=self.path, input=given or b"", capture_output=True, check=False)
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout

    def write(self, name: str | bytes, data: str | bytes, mode: int | None = None) -> bytes:
        """Write a file, the folders above it made; gives its absolute path."""
        place = self.at(name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        if mode is not None:
            os.chmod(place, mode)
        return place

    def read(self, name: str | bytes) -> bytes:
        with open(self.at(name), "rb") as file:
            return file.read()

    def at(self, name: str | bytes) -> bytes:
        return os.path.join(self.top, os.fsencode(name))

    def commit(self, message: str = "c") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def age(self) -> None:
        """Make every file old, so that nothing is copied for being recent: the lived-in case."""
        for folder, folders, files in os.walk(self.top):
            if b".git" in folders:
                folders.remove(b".git")
            for name in files:
                place = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(place).st_mode):
                    os.utime(place, ns=(10**18, 10**18 + 7))
        self.git("update-index", "-q", "--refresh", check=False)
        time.sleep(0.03)  # the ctime cannot be put back


def sh(repo: Repo, script: str) -> Callable[[], None]:
    """A command that is a shell script in the project."""

    def command() -> None:
        subprocess.run(["/bin/sh", "-c", script], cwd=repo.path, capture_output=True, input=b"", check=False)

    return command


_CAPABILITIES_V3 = 0x20080522  # linux/capability.h
_DAC = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_SET_SECURE_BITS, _NO_ROOT = 28, 1  # linux/prctl.h, linux/securebits.h: an exec gives uid 0 no power either


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Permission bits hold, for this process and those that it starts, as for anybody; nothing to do but for root."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", _CAPABILITIES_V3, 0)
    had = ctypes.create_string_buffer(24)
    assert libc.capget(header, had) == 0
    words = list(struct.unpack("6I", had.raw))
    words[0] &= ~_DAC
    assert libc.prctl(_SET_SECURE_BITS, _NO_ROOT, 0, 0, 0) == 0
    try:
        assert libc.capset(header, struct.pack("6I", *words)) == 0
        yield
    finally:
        assert libc.capset(header, had.raw) == 0
        assert libc.prctl(_SET_SECURE_BITS, 0, 0, 0, 0) == 0


def where(repo: Repo) -> project.Project:
    return project.locate(repo.top, os.environb)


def capture(
    repo: Repo,
    command: Callable[[], None] | str,
    limits: Limits = SURVEYED,
    *,
    protect_ignored: bool = True,
    argv: tuple[bytes, ...] = (b"cmd",),
    remember: bool = False,
    look: Callable[[bytes], Seen] = snapshot,
) -> Found:
    """Capture, run the command, find out what it changed. Nothing is judged; `look` is how the judge looks."""
    place = where(repo)
    project.prepare(place)
    run_id = os.urandom(5).hex()
    with ExitStack() as held:
        opened = spool.open_spool(place, run_id)
        held.callback(opened.remove)
        repository = Discovery(repo.top, os.environb).finish()
        base, memory, written = baseline.take(
            place, repository, os.environb, opened, limits, protect_ignored=protect_ignored, argv=argv
        )
        run = Run(run_id, list(argv), repo.top, base.started_ns)
        opened.commit(baseline.begin_record(run, base), at=written, durably=False)
        before = look(repo.top)
        (sh(repo, command) if isinstance(command, str) else command)()
        after = look(repo.top) if os.path.isdir(repo.top) else {}
        with aftermath.look(base, opened) as looked:
            found = record.recorded(base, looked, opened, limits)
        if remember:
            memory.keep(base.copied, base.ignored_folders, pack=opened.pack, spool=opened.path)
    changes = {change.path: change for change in found.changes}
    assert len(changes) == len(found.changes), "a path is listed twice"
    return Found(changes, found.contents, found.git_moved, before, after)


def judged(
    repo: Repo,
    command: Callable[[], None] | str,
    limits: Limits = SURVEYED,
    *,
    modes_blind: bool | None = None,
    unseen: Collection[bytes] = (),
    **options: object,
) -> Found:
    """Capture and judge: exact where it says so, and nothing silent but `unseen` (paths or folders).

    `modes_blind` leaves permission bits and bare folders out, as Git does; by default without a survey.
    """
    found = capture(repo, command, limits, **options)  # type: ignore[arg-type]  # passed on as given
    blind = limits.survey_files_max == 0 if modes_blind is None else modes_blind
    claims_are_true(repo, found, modes_blind=blind)
    nothing_is_silent(found, modes_blind=blind, unseen=unseen)
    return found


def claims_are_true(repo: Repo, found: Found, *, modes_blind: bool = False) -> None:
    """Hold every before-entry that is called exact against what stood there."""
    for path, change in found.changes.items():
        if change.reason is not None:
            continue
        stood = found.before.get(path)
        entry = change.before
        assert entry.kind == (stood.kind if stood else Kind.ABSENT), f"{path!r}: {stood} called {entry}"
        if stood is None:
            continue
        if stood.kind == Kind.FILE:
            assert stood.content is not None
            assert entry.digest == digest_of(stood.content), f"{path!r}: wrong bytes of before"
            kept = found.contents.get(entry.digest)
            if kept is None:
                assert entry.oid is not None, f"{path!r}: its bytes are kept nowhere"
                kept = repo.git("cat-file", "blob", entry.oid)
            assert kept == stood.content, f"{path!r}: other bytes are kept"
        if stood.kind == Kind.LINK:
            assert entry.target == stood.content, f"{path!r}: wrong target of before"
        elif not modes_blind:
            assert entry.mode == stood.mode, f"{path!r}: mode {entry.mode} of before, was {stood.mode}"


def nothing_is_silent(found: Found, *, modes_blind: bool = False, unseen: Collection[bytes] = ()) -> None:
    """Each path that changed is listed, itself or by a folder; each path called restorable did change."""
    for path in sorted(found.before.keys() | found.after.keys()):
        was, now = found.before.get(path), found.after.get(path)
        if modes_blind and (_bare(was) == _bare(now) or Kind.DIRECTORY in {was and was.kind, now and now.kind}):
            continue
        if was != now and not _is_below(path, unseen):
            assert path in found.changes or _is_told(path, found), f"{path!r} changed in silence: {was} -> {now}"
    for path, change in found.changes.items():
        if change.reason is None and not modes_blind:
            assert found.before.get(path) != found.after.get(path), f"{path!r} did not change: {change}"


def _bare(stood: Stood | None) -> object:
    return stood and (stood.kind, stood.content)


def _is_told(path: bytes, found: Found) -> bool:
    if found.gaps.get(b".") == "git_blind":
        return True
    while path:
        path = path.rpartition(b"/")[0]
        if found.gaps.get(path) in WHOLE or found.gaps.get(path + b"/.git") in WHOLE:
            return True
    return False


def _is_below(path: bytes, folders: Collection[bytes]) -> bool:
    return any(path == folder or path.startswith(folder + b"/") for folder in folders)
