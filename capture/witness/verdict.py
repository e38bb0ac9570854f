"""Whether the traced witness works here, and why not: facts, no sentences."""

from __future__ import annotations

import errno


class Why:
    """Why the witness does not work here."""

    NOT_LINUX = "not_linux"
    MACHINE = "machine"  # neither x86-64 nor aarch64, or a 32-bit Python
    KERNEL = "kernel"  # older than 5.5, or built without seccomp filters
    NESTED = "nested"  # another supervisor watches this process already
    FORBIDDEN = "forbidden"  # a container or a policy refuses it
    RESOURCES = "resources"  # no memory, no processes, no descriptors, no room
    BLIND = "blind"  # calls are told, but their paths cannot be read
    FAILED = "failed"


_WHY = {
    errno.EBUSY: Why.NESTED,
    errno.EINVAL: Why.KERNEL,
    errno.ENOSYS: Why.KERNEL,
    errno.EACCES: Why.FORBIDDEN,
    errno.EPERM: Why.FORBIDDEN,
    errno.EAGAIN: Why.RESOURCES,
    errno.ENOMEM: Why.RESOURCES,
    errno.EMFILE: Why.RESOURCES,
    errno.ENFILE: Why.RESOURCES,
    errno.ENOSPC: Why.RESOURCES,
    errno.EDQUOT: Why.RESOURCES,
    errno.EROFS: Why.RESOURCES,
}


class Verdict:
    """Whether a command is traced; if not, `why` (a name of `Why`) and the system's `errno`.

    `no_new_privs` says that setuid programs have no power inside, because we have none ourselves.
    """

    __slots__ = ("errno", "no_new_privs", "why", "works")

    def __init__(
        self, *, works: bool, why: str | None = None, errno: int | None = None, no_new_privs: bool = False
    ) -> None:
        """Hold the facts."""
        self.works = works
        self.why = why
        self.errno = errno
        self.no_new_privs = no_new_privs

    def __repr__(self) -> str:
        """Show the facts that matter in a failed test."""
        return f"Verdict(works={self.works}, why={self.why}, errno={self.errno}, no_new_privs={self.no_new_privs})"


def why_refused(number: int) -> str:
    """Name the reason behind an errno."""
    return _WHY.get(number, Why.FAILED)
