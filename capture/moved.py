"""What moved in Git during a run: commits, branches, the stash. Reads files of the repository, starts nothing."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ckpt_run.capture.git import Repository

_STATES = (b"MERGE_HEAD", b"CHERRY_PICK_HEAD", b"REVERT_HEAD", b"rebase-merge", b"rebase-apply", b"BISECT_LOG")
_LOOSE_MAX = 2000
_LOOSE_READ_MAX = 200
_PACKED_BYTES_MAX = 1 << 16
_LINE_BYTES_MAX = 4096
# The first word of a reflog message (git-reflog(1)); one that is not here is a move of HEAD all the same.
_WORDS = {
    b"am": "commit",
    b"branch:": "branch",
    b"checkout:": "checkout",
    b"cherry-pick:": "commit",
    b"clone:": "commit",
    b"commit": "commit",
    b"commit:": "commit",
    b"merge": "merge",
    b"pull": "merge",
    b"pull:": "merge",
    b"rebase": "rebase",
    b"rebase:": "rebase",
    b"reset:": "reset",
    b"revert:": "commit",
    b"switch:": "checkout",
}


class ReferencesSeen:
    """What a look at a repository's references saw."""

    __slots__ = ("branches", "head", "head_log_end", "stash", "states", "tags")

    def __init__(
        self, head: bytes, head_log_end: bytes, stash: bytes, branches: bytes, tags: bytes, states: tuple[bytes, ...]
    ) -> None:
        """Hold the facts: bytes of HEAD and the stash, the last line of HEAD's log, where branches and tags point."""
        self.head = head
        self.head_log_end = head_log_end
        self.stash = stash
        self.branches = branches
        self.tags = tags
        self.states = states

    def flat(self) -> Any:
        """As a value that marshal can write."""
        return (self.head, self.head_log_end, self.stash, self.branches, self.tags, self.states)


def references(repository: Repository) -> ReferencesSeen:
    """Look at where HEAD, the branches, the tags and the stash stand now."""
    git_dir, common = repository.git_dir, repository.common_dir
    tables = _seen(common + b"/reftable/tables.list")
    packed = _packed(common + b"/packed-refs")
    return ReferencesSeen(
        _read(git_dir + b"/HEAD"),
        _last_line(git_dir + b"/logs/HEAD"),
        _read(common + b"/refs/stash") + _seen(common + b"/logs/refs/stash"),
        tables + _named(common, b"refs/heads/", packed),
        _named(common, b"refs/tags/", packed),
        tuple(name for name in _STATES if os.path.lexists(git_dir + b"/" + name)),
    )


def moved(repository: Repository, before: ReferencesSeen) -> list[str]:
    """Name what moved since: `commit`, `checkout`, `merge`, `rebase`, `reset`, `branch`, `tag`, `stash`, `head`."""
    after = references(repository)
    found = _logged(repository.git_dir + b"/logs/HEAD", before.head_log_end)
    if after.head != before.head and not found:
        found.append("head")
    if after.branches != before.branches and not found:
        found.append("branch")
    if after.tags != before.tags:
        found.append("tag")
    if after.stash != before.stash:
        found.append("stash")
        found = [word for word in found if word != "reset"]  # git stash resets HEAD to where it stands
    if after.states != before.states and "merge" not in found:
        found.append("merge" if b"MERGE_HEAD" in after.states + before.states else "state")
    return found


def _logged(path: bytes, end: bytes) -> list[str]:
    """What the log says behind its last line of before; git-gc(1) may have rewritten what stands above it."""
    data = _read(path)
    at = data.rfind(end) if end else 0
    if at < 0:
        return []
    lines = data[at + len(end) :].splitlines()
    found: list[str] = []
    for line in lines:
        words = line.partition(b"\t")[2].split(b" ")
        name = _WORDS.get(words[0], "head")
        if name not in found:
            found.append(name)
    return found


def _packed(path: bytes) -> dict[bytes, bytes]:
    """The references of a packed-refs file by name (git-pack-refs(1)); of a large one, only that it is as it is."""
    if _size(path) > _PACKED_BYTES_MAX:
        return {kind + b"*": _seen(path) for kind in (b"refs/heads/", b"refs/tags/")}
    found = {}
    for line in _read(path).splitlines():
        if not line.startswith((b"#", b"^")):
            oid, _, name = line.partition(b" ")
            found[name] = oid
    return found


def _named(common: bytes, prefix: bytes, packed: dict[bytes, bytes]) -> bytes:
    """Each reference below `prefix` with where it points; so packing them is no move.

    Of the loose ones, which stand over the packed, a few hundred are read and a few thousand looked at.
    """
    found = {name: oid for name, oid in packed.items() if name.startswith(prefix)}
    waiting = [prefix.rstrip(b"/")]
    loose = 0
    while waiting and loose < _LOOSE_MAX:
        folder = waiting.pop()
        try:
            listing = list(os.scandir(common + b"/" + folder))
        except OSError:
            continue
        for item in listing:
            name = folder + b"/" + item.name
            if item.is_dir(follow_symlinks=False):
                waiting.append(name)
                continue
            loose += 1
            found[name] = _read(item.path).strip() if loose < _LOOSE_READ_MAX else _seen(item.path)
    return b"\n".join(sorted(name + b" " + oid for name, oid in found.items()))


def _seen(path: bytes) -> bytes:
    try:
        info = os.lstat(path)
    except OSError:
        return b""
    return b" %d %d %d" % (info.st_ino, info.st_size, info.st_mtime_ns)


def _last_line(path: bytes) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LINE_BYTES_MAX))
            data = file.read() or b""
    except OSError:
        return b""
    return data[data.rfind(b"\n", 0, -1) + 1 :]


def _size(path: bytes) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _read(path: bytes) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
