"""Who wrote it: the traced witness, which sees every call of a command that can change a file before it happens.

    session = witness.start(top, journal, first_touch=…)      None where the platform cannot
    pid = session.spawn(path, argv, environment, …)           as os.posix_spawn; session.verdict says if it is traced
    session.waitpid(pid, os.WNOHANG | os.WUNTRACED)           as os.waitpid, asked after each SIGCHLD
    session.end()
    trace = witness.read_journal(journal)
    witness.attribute(changed, trace)                         traced, time or other

It works by seccomp user notification: Linux 5.5 or newer, x86-64 and aarch64, without privileges. What it does not
promise: a write is not seen, only the opening for it, so somebody else may have written the same file; what a server
does for the command is not seen (a gap says that it spoke to one); descriptors received over a socket are not.
Elsewhere, and where a container refuses, the command runs untraced and the verdict says why.
"""

from __future__ import annotations

import os
import sys

from .attribution import OTHER, attribute
from .journal import Gap, GapKind, Touch, Trace
from .journal import read as read_journal
from .privileges import has_privileges, is_privileged, needs_privileges
from .verdict import Verdict, Why, why_refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .first_touch import FirstTouch
    from .session import Session

__all__ = [
    "OTHER",
    "Gap",
    "GapKind",
    "Touch",
    "Trace",
    "Verdict",
    "Why",
    "attribute",
    "has_privileges",
    "is_privileged",
    "needs_privileges",
    "possible",
    "probe",
    "read_journal",
    "start",
]

_BITS_64 = 1 << 32
# SECCOMP_USER_NOTIF_FLAG_CONTINUE. Before it a filter with a listener is accepted, and no call could go on.
_LINUX_MIN = (5, 5)


def possible() -> Verdict:
    """Say whether system, kernel and machine are ones that the witness knows; the kernel may still refuse."""
    if not sys.platform.startswith("linux"):
        return Verdict(works=False, why=Why.NOT_LINUX)
    if os.uname().machine not in {"x86_64", "aarch64"} or sys.maxsize < _BITS_64 or sys.byteorder != "little":
        return Verdict(works=False, why=Why.MACHINE)
    release = os.uname().release.replace("-", ".").split(".")
    if tuple(int(number) for number in release[:2] if number.isdecimal()) < _LINUX_MIN:
        return Verdict(works=False, why=Why.KERNEL)
    return Verdict(works=True)


def start(top: bytes, journal: bytes, *, first_touch: FirstTouch | None = None) -> Session | None:
    """Prepare a traced command: a session whose `spawn` starts it; None where the platform cannot.

    `top` is the project's real absolute path, `journal` a file to write (made or emptied, mode 0600); `first_touch`
    says what to copy before it is changed. Call it once for each command. From then on this process is a
    subreaper (prctl(2)).
    """
    if not possible().works:
        return None
    from .calls import machine
    from .session import Session

    known = machine(os.uname().machine)
    return None if known is None else Session(known, top, journal, first_touch)


def probe() -> Verdict:
    """Try it: a child starts another, which writes one file, and the witness must see it. Takes some 20 ms."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ckpt-probe-") as folder:
        top = os.path.realpath(os.fsencode(folder))
        journal = top + b"/journal"
        session = start(top, journal)
        if session is None:
            return possible()
        script = b"(: > '%b/seen'); :" % top
        try:
            session.spawn(b"/bin/sh", [b"sh", b"-c", script], {})
        except OSError as error:
            return Verdict(works=False, why=why_refused(error.errno or 0), errno=error.errno)
        session.wait()
        session.end(wait=True)
        trace = read_journal(journal)
    if session.verdict.works and (not trace.has_touched(b"seen") or trace.gaps):
        return Verdict(works=False, why=Why.BLIND, no_new_privs=session.verdict.no_new_privs)
    return session.verdict
