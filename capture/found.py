"""Remembers where a folder's repository is and how it is set, as long as nothing has changed that Git said it from.

Two programs are spared so. What Git was asked, and what it read for the answer, is remembered with the fingerprint of
each file: the settings (also those that were not there), every `.git` on the way up. Anything unusual, an include, a
reference that leads to another, a repository without `refs`, is not remembered: then Git is asked. Knows nothing of
projects or runs.
"""

from __future__ import annotations

import os

from ckpt_run.capture.copies import is_recent, read_checked, write_checked
from ckpt_run.capture.git import Repository, reading_environment
from ckpt_run.capture.worktree import digest_of, fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.model import Fingerprint

    Seen = list[tuple[bytes, Fingerprint | None]]

_FORMAT = 1
# Where a Git may have been built to look for the system's settings; one that has any names its own as an origin.
_SYSTEM_FILES = (b"/etc/gitconfig", b"/usr/local/etc/gitconfig")
_PACKED_BYTES_MAX = 1 << 20
_OID_LENGTHS = (40, 64)


class _Unsure(Exception):  # noqa: N818  # not a fault: Git is asked instead
    """What stands there is not of the plain kind that can be read without Git."""


def remembered(folder: bytes, environment: Mapping[bytes, bytes], cache: bytes) -> Repository | None:
    """The repository of `folder` (absolute, no links in it) as Git told it before, None where Git must be asked.

    `cache` is the folder in which `remember` keeps what it is told.
    """
    value = read_checked(_place(folder, environment, cache))
    if not isinstance(value, tuple) or value[:1] != (_FORMAT,):
        return None
    _, top, git_dir, common_dir, settings, seen = value
    if any(_fingerprint(path) != fingerprint for path, fingerprint in seen):
        return None
    try:
        head = _head(git_dir, common_dir)
    except (_Unsure, OSError):
        return None
    return Repository(top, git_dir, common_dir, head, settings)


def look(folder: bytes, environment: Mapping[bytes, bytes], repository: Repository) -> Seen | None:
    """What Git's answer about the folder's repository hangs on; None where that cannot be checked later.

    To be called before the command: what changed since Git was asked is not to be trusted.
    """
    if not repository.origins or b"GIT_DIR" in environment:
        return None
    if any(name.startswith((b"include.", b"includeif.")) for name in repository.settings):
        return None
    paths = {*repository.origins, *_SYSTEM_FILES, *_own_files(environment)}
    paths.update((repository.common_dir + b"/config", repository.git_dir + b"/config.worktree"))
    above = folder
    while above not in (repository.top, b"/", b""):
        paths.add(above + b"/.git")
        above = os.path.dirname(above)
    if above != repository.top or _fingerprint(repository.top + b"/.git") is None:
        return None
    paths.update((repository.top, repository.top + b"/.git", repository.git_dir, repository.common_dir + b"/objects"))
    seen = [(path, _fingerprint(path)) for path in sorted(paths)]
    if any(path in repository.origins and fingerprint is None for path, fingerprint in seen):
        return None
    is_settled = all(one is None or not is_recent(one, repository.asked_ns) for _, one in seen)
    return seen if is_settled else None


def remember(
    folder: bytes, environment: Mapping[bytes, bytes], cache: bytes, repository: Repository, seen: Seen
) -> None:
    """Keep what Git told of the folder's repository; `seen` is what `look` gave for it. Raises OSError."""
    place = _place(folder, environment, cache)
    if not os.path.isdir(cache):
        os.mkdir(cache, 0o700)
    value = (_FORMAT, repository.top, repository.git_dir, repository.common_dir, repository.settings, seen)
    write_checked(place, value)


def _own_files(environment: Mapping[bytes, bytes]) -> list[bytes]:
    """Where the person's own settings are, or would be (git-config(1), "FILES")."""
    home = environment.get(b"HOME", b"")
    files = [home + b"/.gitconfig", (environment.get(b"XDG_CONFIG_HOME") or home + b"/.config") + b"/git/config"]
    return files + [environment[name] for name in (b"GIT_CONFIG_GLOBAL", b"GIT_CONFIG_SYSTEM") if name in environment]


def _place(folder: bytes, environment: Mapping[bytes, bytes], cache: bytes) -> bytes:
    """One file for each folder and each environment that Git would answer differently in."""
    kept = reading_environment(environment)
    names = (b"HOME", b"XDG_CONFIG_HOME", b"PATH")
    asked = [(name, kept[name]) for name in sorted(kept) if name in names or name.startswith(b"GIT_")]
    return cache + b"/" + digest_of(repr((folder, asked, os.geteuid())).encode())[:12].hex().encode()


def _fingerprint(path: bytes) -> Fingerprint | None:
    try:
        return fingerprint_of(os.stat(path))
    except OSError:
        return None


def _head(git_dir: bytes, common_dir: bytes) -> bytes | None:
    """The commit of HEAD, None when its branch is unborn. Raises _Unsure, OSError."""
    head = _read(git_dir + b"/HEAD").strip()
    if not head.startswith(b"ref: "):
        return _oid(head)
    name = head[5:]
    if not name.startswith(b"refs/heads/") or os.path.lexists(common_dir + b"/reftable"):
        raise _Unsure
    try:
        return _oid(_read(common_dir + b"/" + name).strip())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        pass  # packed, or unborn
    try:
        packed = _read(common_dir + b"/packed-refs")
    except FileNotFoundError:
        return None
    before, found, _ = packed.partition(b" " + name + b"\n")
    return _oid(before.rpartition(b"\n")[2]) if found else None


def _oid(word: bytes) -> bytes:
    if len(word) not in _OID_LENGTHS or word.strip(b"0123456789abcdef"):
        raise _Unsure
    return word


def _read(path: bytes) -> bytes:
    with open(path, "rb", buffering=0) as file:
        data = file.read(_PACKED_BYTES_MAX + 1) or b""
    if len(data) > _PACKED_BYTES_MAX:
        raise _Unsure
    return data
