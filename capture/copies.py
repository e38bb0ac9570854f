"""Copies of uncommitted files, durable before the command starts. Knows nothing of Git.

The bytes of new copies are written one behind another into the run's spool; a copy that an earlier run made of a
file that did not change since is not read again: the earlier spool is kept as a *pack*, and linked into the run's
folder, so that nobody can take it away while the run needs it.
"""

from __future__ import annotations

import marshal
import os

from ckpt_run.capture import durable
from ckpt_run.capture.model import ABSENT, Entry, Kind
from ckpt_run.capture.reasons import Reason
from ckpt_run.capture.worktree import ChangedWhileRead, TooLarge, digest_of, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ckpt_run.capture.model import Fingerprint, Path
    from ckpt_run.capture.worktree import Tree

    Listing = tuple[Fingerprint | None, list[Path], list[Path], list[Path]]

COARSE_CLOCK_NS = 20_000_000
"""Two writes this close may carry one timestamp: the kernel stamps files by its tick (10 ms at HZ=100)."""
SECOND_NS = 1_000_000_000
_COARSE_FILE_SYSTEM_NS = 2 * SECOND_NS  # FAT keeps two seconds, HFS+ and some network file systems one
_PACKS_MAX = 8
_TABLE_FORMAT = 3  # a table of another format is the same as none: the copies are made anew
_CHECK_BYTES = 32


class Limits:
    """How much a run may copy. Sizes in bytes."""

    __slots__ = ("copy_bytes_max", "files_per_run_max", "project_bytes_max", "survey_files_max")

    def __init__(
        self,
        *,
        copy_bytes_max: int = 5 << 20,
        files_per_run_max: int = 500,
        project_bytes_max: int = 128 << 20,
        survey_files_max: int = 4000,
    ) -> None:
        """Hold the limits: a file's size, files a run, bytes a project; files that a survey looks at."""
        self.copy_bytes_max = copy_bytes_max
        self.files_per_run_max = files_per_run_max
        self.project_bytes_max = project_bytes_max
        self.survey_files_max = survey_files_max


class Copied:
    """An exact entry, the fingerprint it was read under, and where its bytes are (pack name, offset)."""

    __slots__ = ("entry", "fingerprint", "offset", "pack", "read_at_ns")

    def __init__(
        self, entry: Entry, fingerprint: Fingerprint | None, pack: bytes, offset: int, read_at_ns: int
    ) -> None:
        """Hold the facts; `read_at_ns` is when it was read, in nanoseconds since the epoch."""
        self.entry = entry
        self.fingerprint = fingerprint
        self.pack = pack
        self.offset = offset
        self.read_at_ns = read_at_ns

    def flat(self) -> Any:
        """As a value that marshal can write."""
        entry = self.entry
        facts = (entry.kind, entry.mode, entry.size, entry.digest, entry.target, entry.owner)
        return (facts, self.fingerprint, self.pack, self.offset, self.read_at_ns)


def unflat(value: Any) -> Copied:
    """Read back what `Copied.flat` gave."""
    facts, fingerprint, pack, offset, read_at_ns = value
    kind, mode, size, digest, target, owner = facts
    entry = Entry(kind, mode=mode, size=size, digest=digest, target=target, owner=owner)
    return Copied(entry, fingerprint, pack, offset, read_at_ns)


class Uncopied:
    """Why a path has no exact copy, with the reason's numbers and the fingerprint it had."""

    __slots__ = ("fingerprint", "numbers", "reason")

    def __init__(self, reason: str, numbers: Mapping[str, int | str], fingerprint: Fingerprint | None) -> None:
        """Hold the facts."""
        self.reason = reason
        self.numbers = dict(numbers)
        self.fingerprint = fingerprint


def recent_among(fingerprints: Mapping[Path, Fingerprint], since_ns: int) -> list[Path]:
    """The paths of which `is_recent` is true; made to be quick where few are."""
    near = since_ns - _COARSE_FILE_SYSTEM_NS
    return [
        path
        for path, seen in fingerprints.items()
        if (seen[5] >= near or seen[4] >= near) and is_recent(seen, since_ns)
    ]


def is_recent(fingerprint: Fingerprint, since_ns: int) -> bool:
    """Say whether a file's timestamps are so near `since_ns` that a later write could carry the same ones."""
    newest = max(fingerprint[4], fingerprint[5])
    coarse = newest % SECOND_NS == 0
    return newest >= since_ns - (_COARSE_FILE_SYSTEM_NS if coarse else COARSE_CLOCK_NS)


class Copier:
    """Copies paths into a spool that is open for writing, within the limits; knows what earlier runs copied."""

    def __init__(
        self, tree: Tree, spool: int, pack: bytes, earlier: Mapping[Path, Copied], limits: Limits, now_ns: int
    ) -> None:
        """Write new bytes to `spool`, which later runs will call `pack`; `now_ns` is the clock at the start."""
        self._tree = tree
        self._spool = spool
        self._pack = pack
        self._earlier = earlier
        self._limits = limits
        self._now_ns = now_ns
        self._read = 0
        self._bytes = 0
        self.written = 0
        self.copied: dict[Path, Copied] = {}
        self.uncopied: dict[Path, Uncopied] = {}

    def copy(self, paths: Iterable[Path], fingerprints: Mapping[Path, Fingerprint] | None) -> None:
        """Copy each path's exact entry, or note why not.

        `fingerprints` is what a survey saw a moment ago, None where each path must be looked at. Raises OSError
        only when the spool cannot be written.
        """
        for path in paths:
            if path in self.copied or path in self.uncopied:
                continue
            try:
                # A path that the survey did not see may have come since, or stand where it could not look.
                fingerprint = (fingerprints and fingerprints.get(path)) or self._tree.fingerprint(path)
            except OSError as error:
                self._refuse(path, Reason.UNREADABLE, None, cause=error.strerror or "")
                continue
            self._copy_one(path, fingerprint)

    def forget(self, packs: set[bytes]) -> None:
        """Do not use the copies in these packs any more."""
        self._earlier = {path: copy for path, copy in self._earlier.items() if copy.pack not in packs}

    def _copy_one(self, path: Path, fingerprint: Fingerprint | None) -> None:
        if fingerprint is None:
            self.copied[path] = Copied(ABSENT, None, b"", 0, self._now_ns)
            return
        if kind_of(fingerprint[2]) == Kind.SPECIAL:
            self._refuse(path, Reason.SPECIAL_FILE, fingerprint)
            return
        earlier = self._earlier.get(path)
        if (
            earlier is not None
            and earlier.fingerprint == fingerprint
            and not is_recent(fingerprint, earlier.read_at_ns)
            and self._bytes + (earlier.entry.size or 0) <= self._limits.project_bytes_max
        ):
            self._bytes += earlier.entry.size or 0
            self.copied[path] = earlier
            return
        if self._read >= self._limits.files_per_run_max:
            self._refuse(path, Reason.TOO_MANY, fingerprint, limit_files=self._limits.files_per_run_max)
            return
        self._read_one(path, fingerprint)

    def _read_one(self, path: Path, fingerprint: Fingerprint) -> None:
        limits = self._limits
        try:
            copy = self._tree.copy(path, limit_bytes=limits.copy_bytes_max)
        except TooLarge as large:
            facts = {"size_bytes": large.size_bytes, "limit_bytes": limits.copy_bytes_max}
            self._refuse(path, Reason.TOO_LARGE, fingerprint, **facts)
            return
        except ChangedWhileRead:
            self._refuse(path, Reason.CHANGED_WHILE_READ, fingerprint)
            return
        except OSError as error:
            self._refuse(path, Reason.UNREADABLE, fingerprint, cause=error.strerror or "")
            return
        size = copy.entry.size or 0
        if self._bytes + size > limits.project_bytes_max:
            self._refuse(path, Reason.BUDGET, fingerprint, limit_bytes=limits.project_bytes_max)
            return
        durable.write_all(self._spool, copy.data)
        self.copied[path] = Copied(copy.entry, copy.fingerprint, self._pack, self.written, self._now_ns)
        self._read += 1
        self._bytes += size
        self.written += len(copy.data)

    def copy_if_room(self, paths: Iterable[Path], limits: Limits) -> None:
        """Copy clean files within other limits; one that is over them is not noted: Git's blob stands for it."""
        self._limits = limits
        for path in paths:
            if path in self.copied or path in self.uncopied:
                continue
            self.copy([path], None)
            self.uncopied.pop(path, None)

    def note_left_out(self, paths: Iterable[Path], fingerprints: Mapping[Path, Fingerprint] | None) -> None:
        """Note how ignored files that are not copied stand, so that a change in one is seen; see `copy`."""
        for path in paths:
            try:
                fingerprint = (fingerprints and fingerprints.get(path)) or self._tree.fingerprint(path)
            except OSError:
                continue  # what cannot be looked at now cannot be compared later
            pattern = "*" + os.fsdecode(b"." + path.rpartition(b".")[2])
            self._refuse(path, Reason.IGNORED_LEFT_OUT, fingerprint, pattern=pattern)

    def _refuse(self, path: Path, reason: str, fingerprint: Fingerprint | None, **numbers: int | str) -> None:
        self.uncopied[path] = Uncopied(reason, numbers, fingerprint)


def link_packs(copied: Mapping[Path, Copied], packs: bytes, run_packs: bytes) -> set[bytes]:
    """Link the packs that the copies need into the run's folder; gives the names of those that are gone."""
    gone = set()
    for name in {copy.pack for copy in copied.values() if copy.pack}:
        try:
            os.link(packs + b"/" + name, run_packs + b"/" + name)
        except OSError:
            gone.add(name)
    return gone


def bytes_of(copy: Copied, places: Iterable[bytes]) -> bytes | None:
    """The bytes of a copy, from the first of the pack files that is there; None when they are gone or damaged."""
    entry = copy.entry
    if entry.kind != Kind.FILE:
        return b""
    for place in places:
        try:
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            data = os.pread(fd, entry.size or 0, copy.offset)
        finally:
            os.close(fd)
        if digest_of(data) == entry.digest:
            return data
    return None


def write_checked(path: bytes, value: Any) -> None:
    """Write a value that a torn file cannot be taken for: marshal behind its own digest."""
    data = marshal.dumps(value)
    durable.write_private(path, digest_of(data) + data)


def read_checked(path: bytes) -> Any:
    """Read what `write_checked` wrote; None when it is missing, torn, or from another Python."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = b""
        while piece := os.read(fd, 1 << 22):
            raw += piece
    finally:
        os.close(fd)
    data = raw[_CHECK_BYTES:]
    if digest_of(data) != raw[:_CHECK_BYTES]:
        return None
    try:
        value = marshal.loads(data)  # our own file, 0600, checked by digest
    except (ValueError, EOFError, TypeError):
        return None
    return value


class Memory:
    """What a project's earlier runs left for the next: copies, folders that Git ignored, a refreshed index.

    `listing` is what a project without a survey last learned from the list of its index: the fingerprint of the
    project's own index then, and three sorted lists of paths (see `private.parse_listing`).
    """

    __slots__ = ("_table", "copied", "folder", "ignored_folders", "large_folders", "listing")

    def __init__(self, folder: bytes) -> None:
        """Look at `folder` later: `load` reads what is in it."""
        self.folder = folder
        self.copied: dict[Path, Copied] = {}
        self.ignored_folders: set[Path] = set()
        self.large_folders: set[Path] = set()
        self.listing: Listing = (None, [], [], [])
        self._table: object = None

    def load(self) -> None:
        """Read what earlier runs left; nothing usable there is the same as nothing."""
        value = read_checked(self.folder + b"/table")
        self._table = value
        if isinstance(value, tuple) and value[:1] == (_TABLE_FORMAT,):
            _, copied, ignored_folders, large_folders, self.listing = value
            self.copied = {path: unflat(flat) for path, flat in copied.items()}
            self.ignored_folders = set(ignored_folders)
            self.large_folders = set(large_folders)

    @property
    def packs(self) -> bytes:
        """Where the packs are."""
        return self.folder + b"/packs"

    def claim_index(self, fingerprint: Fingerprint | None) -> bytes | None:
        """Where the refreshed index for an index of this fingerprint is; only one run can move it away."""
        path = self._index_path(fingerprint)
        return path if fingerprint is not None and os.path.exists(path) else None

    def _index_path(self, fingerprint: Fingerprint | None) -> bytes:
        return self.folder + b"/index-" + digest_of(repr(fingerprint).encode())[:12].hex().encode()

    def keep_index(self, index: bytes, fingerprint: Fingerprint) -> None:
        """Keep the refreshed index for the next run; forget those of other states of the project's index."""
        path = self._index_path(fingerprint)
        os.rename(index, path)
        for name in os.listdir(self.folder):
            if name.startswith(b"index-") and self.folder + b"/" + name != path:
                _unlink(self.folder + b"/" + name)

    def keep(self, copied: Mapping[Path, Copied], ignored_folders: set[Path], *, pack: bytes, spool: bytes) -> None:
        """Remember the copies for the next run; `spool` becomes the pack of this name, if it holds any of them."""
        if any(copy.pack == pack for copy in copied.values()):
            os.link(spool, self.packs + b"/" + pack)
        used: dict[bytes, int] = {}
        for copy in copied.values():
            used[copy.pack] = used.get(copy.pack, 0) + 1
        # Many packs mean many links a run: the ones that hold least are copied anew next time.
        for name in sorted(used, key=lambda name: used[name])[: max(0, len(used) - _PACKS_MAX)]:
            del used[name]
        kept = {path: copy.flat() for path, copy in copied.items() if copy.pack in used and copy.fingerprint}
        table = (
            _TABLE_FORMAT,
            kept,
            sorted(ignored_folders),
            sorted(self.large_folders.intersection(ignored_folders)),
            self.listing,
        )
        if table == self._table:
            return
        write_checked(self.folder + b"/table", table)
        for name in os.listdir(self.packs):
            if name not in used:
                _unlink(self.packs + b"/" + name)


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # another run was quicker
