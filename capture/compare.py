"""Compares what files were with what they are: lines added and removed, and a patch. Git does the comparing.

All pairs are laid out as two small trees in a private temporary folder, so that one program serves for all of them.
"""

from __future__ import annotations

import os
import tempfile

from ckpt_run.capture.git import sealed_output
from ckpt_run.capture.model import Entry, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckpt_run.capture.model import Path


class Pair:
    """A path with its entry and bytes on both sides; bytes are None for what holds none."""

    __slots__ = ("after", "after_data", "before", "before_data", "path")

    def __init__(
        self, path: Path, before: Entry, before_data: bytes | None, after: Entry, after_data: bytes | None
    ) -> None:
        """Hold the facts; a file's bytes must be there."""
        self.path = path
        self.before = before
        self.before_data = before_data
        self.after = after
        self.after_data = after_data


def line_counts(pairs: Iterable[Pair]) -> dict[Path, tuple[int, int] | None]:
    """Lines (added, removed) for each path; None for a binary one. A path that did not change is (0, 0)."""
    found: dict[Path, tuple[int, int] | None] = {}
    with _laid_out(pairs) as (folder, paths):
        found.update(dict.fromkeys(paths, (0, 0)))
        out = sealed_output(folder, [b"diff", b"--no-index", b"--numstat", b"--no-renames", b"-z", b"a", b"b"])
    # git-diff(1), --numstat -z: added TAB removed TAB path NUL; two paths in fields of their own where the names
    # differ (a/x and b/x always do), `-` for binary files.
    fields = out.split(b"\0")
    while len(fields) > 1:
        added, removed, name = fields.pop(0).split(b"\t", 2)
        names = [name] if name else [fields.pop(0), fields.pop(0)]
        path = next(one for one in names if one != b"/dev/null")[2:]
        found[path] = None if added == b"-" else (int(added), int(removed))
    return found


def patch(pairs: Iterable[Pair], *, is_coloured: bool) -> bytes:
    """A unified diff of all pairs, as Git prints it."""
    colour = b"--color=always" if is_coloured else b"--color=never"
    with _laid_out(pairs) as (folder, _):
        return sealed_output(folder, [b"diff", b"--no-index", b"--no-prefix", b"--no-renames", colour, b"a", b"b"])


class _laid_out:  # noqa: N801  # a scope, named by what holds inside it
    """The pairs as the trees `a` and `b` in a temporary folder; gives the folder and the paths."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = pairs

    def __enter__(self) -> tuple[bytes, list[Path]]:
        self._folder = tempfile.TemporaryDirectory(prefix="ckpt-compare-")
        folder = os.fsencode(self._folder.name)
        paths = []
        for side in (b"a", b"b"):
            os.mkdir(folder + b"/" + side)
        for pair in self._pairs:
            paths.append(pair.path)
            _lay_out(folder + b"/a/" + pair.path, pair.before, pair.before_data)
            _lay_out(folder + b"/b/" + pair.path, pair.after, pair.after_data)
        return folder, paths

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _lay_out(place: bytes, entry: Entry, data: bytes | None) -> None:
    if entry.kind not in (Kind.FILE, Kind.LINK):
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if entry.kind == Kind.LINK:
        os.symlink(entry.target or b"", place)
        return
    with open(place, "wb") as file:
        file.write(data or b"")
    os.chmod(place, 0o755 if (entry.mode or 0) & 0o100 else 0o644)
