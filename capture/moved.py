"""What moved in Git during a run: commits, branches, the stash. Reads files of the repository, starts nothing."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ckpt_run.capture.git import Repository

_STATES = (b"MERGE_HEAD", b"CHERRY_PICK_HEAD", b"REVERT_HEAD", b"rebase-merge", b"rebase-apply", b"BISECT_LOG")
_LOOSE_MAX = 2000
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

    __slots__ = ("branches", "head", "head_log_bytes", "stash", "states", "tags")

    def __init__(
        self, head: bytes, head_log_bytes: int, stash: bytes, branches: bytes, tags: bytes, states: tuple[bytes, ...]
    ) -> None:
        """Hold the facts: bytes of HEAD and the stash, the size of HEAD's log, branches and tags as seen."""
        self.head = head
        self.head_log_bytes = head_log_bytes
        self.stash = stash
        self.branches = branches
        self.tags = tags
        self.states = states

    def flat(self) -> Any:
        """As a value that marshal can write."""
        return (self.head, self.head_log_bytes, self.stash, self.branches, self.tags, self.states)


def references(repository: Repository) -> ReferencesSeen:
    """Look at where HEAD, the branches, the tags and the stash stand now."""
    git_dir, common = repository.git_dir, repository.common_dir
    packed = _seen(common + b"/packed-refs") + _seen(common + b"/reftable/tables.list")
    return ReferencesSeen(
        _read(git_dir + b"/HEAD"),
        _size(git_dir + b"/logs/HEAD"),
        _read(common + b"/refs/stash") + _seen(common + b"/logs/refs/stash"),
        packed + _loose(common + b"/refs/heads"),
        _loose(common + b"/refs/tags"),
        tuple(name for name in _STATES if os.path.lexists(git_dir + b"/" + name)),
    )


def moved(repository: Repository, before: ReferencesSeen) -> list[str]:
    """Name what moved since: `commit`, `checkout`, `merge`, `rebase`, `reset`, `branch`, `tag`, `stash`, `head`."""
    after = references(repository)
    found = _logged(repository.git_dir + b"/logs/HEAD", before.head_log_bytes)
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


def _logged(path: bytes, start: int) -> list[str]:
    lines = _read(path)[start:].splitlines()
    found: list[str] = []
    for line in lines:
        words = line.partition(b"\t")[2].split(b" ")
        name = _WORDS.get(words[0], "head")
        if name not in found:
            found.append(name)
    return found


def _loose(folder: bytes) -> bytes:
    """The loose references below a folder: names and bytes' stamps; a few thousand at most are looked at."""
    seen: list[bytes] = []
    waiting = [folder]
    while waiting and len(seen) < _LOOSE_MAX:
        try:
            listing = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                waiting.append(item.path)
            else:
                seen.append(item.path + _seen(item.path))
    return b"\n".join(sorted(seen))


def _seen(path: bytes) -> bytes:
    try:
        info = os.lstat(path)
    except OSError:
        return b""
    return b" %d %d %d" % (info.st_ino, info.st_size, info.st_mtime_ns)


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
