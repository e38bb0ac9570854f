"""The bytes an undo is about to replace, and those that could not be put back: in the store, or beside it.

It promises that what `keep` and `save_large` wrote is durable when they return. It does not decide what is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ckpt_run.capture import durable
from ckpt_run.capture.model import Kind
from ckpt_run.capture.place import NO_LIMIT, Stale
from ckpt_run.capture.worktree import ChangedWhileRead, digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckpt_run.capture.model import Entry, Path, Step
    from ckpt_run.capture.store import Store
    from ckpt_run.capture.worktree import Tree

STORED_BYTES_MAX = 64 << 20
"""A larger file is rescued as a file beside the store, for the time of the undo; redo cannot bring it back."""
_CHUNK_BYTES = 1 << 20


class Rescue(Mapping[bytes, bytes]):
    """Digest -> bytes of the entries that the steps replace, each read when it is asked for; and bytes made."""

    def __init__(self, tree: Tree, steps: Sequence[Step], made: Mapping[bytes, bytes]) -> None:
        """Name what is to be rescued; files over STORED_BYTES_MAX are not."""
        self._tree = tree
        self._made = made
        self._paths: dict[bytes, Path] = {
            step.now.digest: step.path for step in steps if step.now.digest is not None and not is_large(step.now)
        }

    def __getitem__(self, digest: bytes) -> bytes:
        """Read the bytes; raises Stale when the file is no longer what it was."""
        if digest in self._made:
            return self._made[digest]
        path = self._paths[digest]
        try:
            copy = self._tree.copy(path, limit_bytes=STORED_BYTES_MAX)
        except ChangedWhileRead:
            raise Stale(path) from None
        if copy.entry.digest != digest:
            raise Stale(path)
        return copy.data

    def __iter__(self) -> Iterator[bytes]:
        """Go through the digests."""
        return iter({**self._paths, **self._made})

    def __len__(self) -> int:
        """Count the digests."""
        return len({**self._paths, **self._made})


def is_large(entry: Entry) -> bool:
    """Say whether the entry is rescued beside the store and not in it."""
    return entry.kind == Kind.FILE and (entry.size or 0) > STORED_BYTES_MAX


class Shelf:
    """The folder `rescue/<undo id>` beside the store: large files for the time of an undo, and what was kept."""

    __slots__ = ("_store", "path")

    def __init__(self, store: Store, undo_id: str) -> None:
        """Name the folder; it is made when something is put there."""
        self._store = store
        self.path = os.path.join(store.folder, b"rescue", undo_id.encode("ascii"))

    def save_large(self, tree: Tree, steps: Sequence[Step]) -> None:
        """Copy the large files that the steps replace; raises Stale, OSError."""
        for step in steps:
            if is_large(step.now) and step.now.digest is not None:
                self._copy(tree, step)

    def _copy(self, tree: Tree, step: Step) -> None:
        data = tree.copy(step.path, limit_bytes=NO_LIMIT)
        if data.entry.digest != step.now.digest:
            raise Stale(step.path)
        self.keep(data.data)

    def keep(self, data: bytes) -> bytes:
        """Write the bytes under their digest, durable; gives the file's absolute path."""
        durable.make_private_folder(self.path)
        place = os.path.join(self.path, digest_of(data).hex().encode("ascii"))
        if self._read(place) == data:
            return place
        partial = place + b".part"
        if os.path.lexists(partial):
            os.unlink(partial)
        fd = durable.create_private(partial)
        try:
            durable.write_all(fd, data)
            durable.sync(fd)
        finally:
            os.close(fd)
        os.rename(partial, place)
        for folder in (self.path, os.path.dirname(self.path), self._store.folder):
            durable.sync_folder(folder)
        return place

    def _read(self, place: bytes) -> bytes | None:
        try:
            with open(place, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def bytes_of(self, entry: Entry) -> bytes | None:
        """The bytes of a file's entry, from the store or from here; None when neither has them."""
        if entry.digest is None:
            return None
        data = self._store.content(entry.digest)
        if data is None:
            data = self._read(os.path.join(self.path, entry.digest.hex().encode("ascii")))
            if data is not None and digest_of(data) != entry.digest:
                return None
        return data

    def clear(self, *, but: frozenset[bytes] = frozenset()) -> None:
        """Remove the folder's files but those named (absolute paths), and the folder when it is empty then."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return
        for name in names:
            place = os.path.join(self.path, name)
            if place not in but:
                os.unlink(place)
        if not but:
            os.rmdir(self.path)
