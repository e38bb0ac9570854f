"""Where a plan's bytes come from: merging, the project as it stands, the store or Git. Keeps nothing on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt_run.capture.model import Entry, Kind
from ckpt_run.capture.undo.change import MERGE_BYTES_MAX, with_mode
from ckpt_run.capture.undo.merge import is_text
from ckpt_run.capture.worktree import ChangedWhileRead, TooLarge, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckpt_run.capture.model import Path
    from ckpt_run.capture.worktree import Tree

    Contents = Callable[[Entry], bytes | None]
    """The exact bytes of a file's entry, None when nobody has them any more."""


class Sources:
    """Bytes of entries, verified by digest. What merging made is kept in memory."""

    __slots__ = ("_contents", "_tree", "made")

    def __init__(self, tree: Tree, contents: Contents) -> None:
        """Ask `contents` for what does not stand in the project."""
        self._tree = tree
        self._contents = contents
        self.made: dict[bytes, bytes] = {}

    def bytes_of(self, entry: Entry) -> bytes | None:
        """The bytes of a file's entry, None when they are lost or not what the digest says."""
        if entry.digest is not None and entry.digest in self.made:
            return self.made[entry.digest]
        data = self._contents(entry)
        if data is None or (entry.digest is not None and digest_of(data) != entry.digest):
            return None
        return data

    def bytes_at(self, path: Path, entry: Entry) -> bytes | None:
        """The bytes of an entry that may be the one that stands at the path; at most MERGE_BYTES_MAX of them."""
        if entry.digest is not None and entry.digest in self.made:
            return self.made[entry.digest]
        try:
            copy = self._tree.copy(path, limit_bytes=MERGE_BYTES_MAX)
        except (OSError, TooLarge, ChangedWhileRead):
            return self.bytes_of(entry)
        if copy.entry.kind == Kind.FILE and copy.entry.digest == entry.digest:
            return copy.data
        return self.bytes_of(entry)

    def is_text_at(self, path: Path, entry: Entry) -> bool | None:
        """Say whether the entry is text; None when its bytes are lost."""
        data = self.bytes_at(path, entry)
        return None if data is None else is_text(data)

    def known(self, entry: Entry) -> Entry | None:
        """The entry with its digest, which Git's blobs do not come with; None when its bytes are lost."""
        if entry.kind != Kind.FILE or entry.digest is not None:
            return entry
        data = self.bytes_of(entry) if entry.oid is not None else None
        if data is None:
            return None
        whole = with_mode(entry, entry.mode, entry.owner)
        whole.digest = digest_of(data)
        whole.size = len(data)
        return whole
