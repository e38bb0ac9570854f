"""A disk that follows a script: at the n-th operation that writes, an error, or the death of the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from ckpt_run.capture import durable

WRITING = (
    "write",
    "fsync",
    "fdatasync",
    "ftruncate",
    "rename",
    "link",
    "symlink",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "fchmod",
    "chown",
    "fchown",
    "setxattr",
)
MAKING = ("write", "open", "mkdir", "symlink", "link", "ftruncate")
"""Operations that a full disk refuses."""


class Died(BaseException):
    """The process is dead: from here on it does nothing at all."""


class FaultyDisk:
    """Within it, operations that write are counted, and `script` says what happens at each.

    `script(number, name)` gives None (it works), an errno, `"die"` (before it) or `"die after"` (after it; a write
    is cut short).
    """

    def __init__(self, script: Callable[[int, str], int | str | None]) -> None:
        self.script = script
        self.count = 0
        self.names: list[str] = []
        self.is_dead = False
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> FaultyDisk:
        for name in WRITING:
            if hasattr(os, name):
                self._patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        opened = os.open

        def faulty_open(path: bytes, flags: int, *rest: int, **more: int | None) -> int:
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                fd: int = self._wrapped("open", opened)(path, flags, *rest, **more)
                return fd
            self._refuse_the_dead()
            return opened(path, flags, *rest, **more)  # type: ignore[arg-type]

        self._patch.setattr(os, "open", faulty_open)
        renamed = durable._rename_flags

        def faulty_rename(*arguments: object) -> int:
            try:
                problem: int = self._wrapped("rename", renamed)(*arguments)
                return problem
            except OSError as error:
                return error.errno or errno.EIO

        self._patch.setattr(durable, "_rename_flags", faulty_rename)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()

    def _refuse_the_dead(self) -> None:
        if self.is_dead:
            raise Died

    def _wrapped(self, name: str, real: Callable[..., object]) -> Callable[..., Any]:
        def operation(*arguments: object, **more: object) -> object:
            self._refuse_the_dead()
            self.count += 1
            self.names.append(name)
            order = self.script(self.count, name)
            if isinstance(order, int):
                raise OSError(order, os.strerror(order))
            if order == "die":
                self.is_dead = True
                raise Died
            if order == "die after":
                self.is_dead = True
                if name == "write":
                    data = memoryview(arguments[1])  # type: ignore[arg-type]
                    real(arguments[0], data[: len(data) // 2])
                else:
                    real(*arguments, **more)
                raise Died
            return real(*arguments, **more)

        return operation


def at(position: int, order: int | str) -> Callable[[int, str], int | str | None]:
    """At one position only."""
    return lambda number, _: order if number == position else None


def full_from(position: int) -> Callable[[int, str], int | str | None]:
    """From a position on the disk is full: nothing new can be made, but names can still go and be swapped."""
    return lambda number, name: errno.ENOSPC if number >= position and name in MAKING else None


def nothing(_number: int, _name: str) -> None:
    """Everything works."""


FOLDING = ("stat", "open", "unlink", "mkdir", "rmdir", "readlink", "symlink", "chown")


def fold_case(patch: pytest.MonkeyPatch) -> None:
    """Make names within open folders answer in any case and keep theirs, as the usual file systems of macOS do."""

    def found(name: bytes, folder: int | None) -> bytes:
        if folder is None or not isinstance(name, bytes) or b"/" in name:
            return name
        names = [os.fsencode(one) for one in os.listdir(folder)]
        return next((one for one in names if one.lower() == name.lower()), name)

    def folded(real: Callable[..., object], *, names: int) -> Callable[..., object]:
        def operation(*arguments: Any, **more: Any) -> object:
            words = list(arguments)
            words[names] = found(words[names], more.get("dir_fd"))
            return real(*words, **more)

        return operation

    for name in FOLDING:
        patch.setattr(os, name, folded(getattr(os, name), names=1 if name == "symlink" else 0))
    renamed = durable._rename_flags

    def rename(source: bytes, target: bytes, folder: int, *flags: int) -> int:
        return renamed(found(source, folder), found(target, folder), folder, *flags)

    patch.setattr(durable, "_rename_flags", rename)


def just_before(monkeypatch: pytest.MonkeyPatch, door: str, deed: Callable[[], object]) -> None:
    """Do the deed once, at the last instant before `durable` goes through that door."""
    real = getattr(durable, door)
    waiting = [deed]

    def opened(*arguments: object, **more: object) -> object:
        if waiting:
            waiting.pop()()
        return real(*arguments, **more)

    monkeypatch.setattr(durable, door, opened)
