"""Would a program gain privileges when it starts? Under `no_new_privs` it would not, and sudo fails.

Looks at files only; starts nothing.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CAP_SYS_ADMIN = 21  # linux/capability.h
_CAPABILITIES = "security.capability"  # capabilities(7)


def is_privileged() -> bool:
    """Say whether a filter needs no `no_new_privs` here: CAP_SYS_ADMIN is in effect (seccomp(2))."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            for line in file.readall().splitlines():
                if line.startswith(b"CapEff:"):
                    return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    except OSError:
        return False
    return False


def has_privileges(program: bytes) -> bool:
    """Say whether the file would gain privileges: setuid, setgid or file capabilities, where the mount lets it."""
    try:
        mode = os.stat(program).st_mode
    except OSError:
        return False
    if not stat.S_ISREG(mode) or not mode & 0o111:
        return False
    if mode & stat.S_ISUID or (mode & stat.S_ISGID and mode & stat.S_IXGRP):
        return not _is_nosuid(program)
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.getxattr(program, _CAPABILITIES)
    except OSError:
        return False
    return not _is_nosuid(program)


def needs_privileges(argv: Sequence[bytes], environment: Mapping[bytes, bytes]) -> bytes | None:
    """Return the first program that a word of the command names and that would gain privileges, or None.

    Each word is looked at, also those inside a shell's `-c` text, as the shell would find it on PATH.
    """
    folders = environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    seen: set[bytes] = set()
    for text in argv:
        for word in _words(text):
            if word in seen:
                continue
            seen.add(word)
            places = [word] if b"/" in word else [(folder or b".") + b"/" + word for folder in folders]
            for place in places:
                if os.access(place, os.X_OK):
                    if has_privileges(place):
                        return place
                    break
    return None


def _words(text: bytes) -> list[bytes]:
    """Cut a text where a shell would begin a new command or word."""
    for mark in b";|&()<>{}\"'`$=\n\t":
        text = text.replace(bytes((mark,)), b" ")
    return [word for word in text.split(b" ") if word]


def _is_nosuid(program: bytes) -> bool:
    try:
        return bool(os.statvfs(program).f_flag & os.ST_NOSUID)
    except OSError:
        return False
