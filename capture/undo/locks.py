"""The two locks of a project that an undo takes; both die with their process."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpt_run.capture import durable
from ckpt_run.capture.errors import Fault, StoreError, UndoError

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNDO = b"undo.lock"
_RUNS = b"runs.lock"  # every wrapped run holds it together with the others, for its life


class Held:
    """Proof that both locks are held; only `locked` makes one."""

    __slots__ = ()


def undo_lock(folder: bytes) -> durable.Lock | None:
    """Take the lock of undos in the store's folder; None while somebody holds it. Raises StoreError."""
    return _lock(folder, _UNDO)


def _lock(folder: bytes, name: bytes) -> durable.Lock | None:
    path = os.path.join(folder, name)
    try:
        return durable.lock(path, durable.Share.ALONE, wait=False)
    except OSError as error:
        raise StoreError(Fault.STORE_NOT_WRITABLE, path=path, cause=error.strerror) from error


@contextmanager
def locked(folder: bytes) -> Iterator[Held]:
    """Hold both locks; raises UndoError UNDO_IN_PROGRESS or RUN_IN_PROGRESS when somebody else holds one."""
    undo = undo_lock(folder)
    if undo is None:
        raise UndoError(Fault.UNDO_IN_PROGRESS)
    with undo:
        runs = _lock(folder, _RUNS)
        if runs is None:
            raise UndoError(Fault.RUN_IN_PROGRESS)
        with runs:
            yield Held()
