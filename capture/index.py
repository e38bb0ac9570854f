"""Reads a Git index file: which paths are tracked, and what Git noted of each when it last looked.

Versions 2 to 4, SHA-1 and SHA-256, as gitformat-index(5) describes them. Starts nothing, writes nothing.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ckpt_run.capture.model import Path

_HEADER = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")  # ctime s, ns; mtime s, ns; dev; ino; mode; uid; gid; size
_FLAG_ASSUME_VALID = 0x8000
_FLAG_EXTENDED = 0x4000
_STAGE = 0x3000
_EXTENDED_SKIP_WORKTREE = 0x4000
_EXTENDED_INTENT_TO_ADD = 0x2000
_NAME_LENGTH = 0xFFF
_MODE_FOLDER = 0o040000
MODE_LINK = 0o120000
ASSUME_UNCHANGED = "assume-unchanged"
SKIP_WORKTREE = "skip-worktree"
MODE_SUBMODULE = 0o160000
UINT32 = 0xFFFFFFFF
"""What the format keeps of a number (gitformat-index(5)): its lowest 32 bits."""


class NotAnIndex(Exception):  # noqa: N818  # a fact about a file, not a fault of ours
    """The bytes are not an index that we can read."""


class Tracked:
    """One entry of the index: Git's mode, the blob's id in hex, the noted stat data, the flags.

    `size_bytes` is the noted size modulo 2**32, 0 when Git does not trust its own note; `flag` names
    `assume-unchanged` or `skip-worktree`, None for an ordinary entry.
    """

    __slots__ = ("flag", "mode", "oid", "size_bytes", "stat")

    def __init__(self, mode: int, oid: bytes, size_bytes: int, flag: str | None, stat: tuple[int, ...]) -> None:
        """Hold the facts; `stat` is (ctime s, ns, mtime s, ns, dev, ino) as noted."""
        self.mode = mode
        self.oid = oid
        self.size_bytes = size_bytes
        self.flag = flag
        self.stat = stat


class Index:
    """The tracked paths of an index. `sparse_folders` are folders that a sparse index holds as a whole.

    Conflicted paths are in `conflicts`, intent-to-add ones in `intended`; neither has a blob that tells what
    stood in the worktree.
    """

    __slots__ = ("conflicts", "intended", "is_split", "sparse_folders", "tracked")

    def __init__(self) -> None:
        """Start empty."""
        self.tracked: dict[Path, Tracked] = {}
        self.conflicts: set[Path] = set()
        self.intended: set[Path] = set()
        self.sparse_folders: set[Path] = set()
        self.is_split = False


def count_entries(header: bytes) -> int:
    """How many entries an index has, from its first 12 bytes; 0 when they are not an index's."""
    if len(header) < _HEADER.size:
        return 0
    signature, _, count = _HEADER.unpack_from(header)
    return int(count) if signature == b"DIRC" else 0


def parse(data: bytes, *, oid_bytes: int) -> Index:
    """Read a whole index file; `oid_bytes` is 20 for SHA-1, 32 for SHA-256. Raises NotAnIndex."""
    if not data:
        return Index()
    try:
        return _parse(data, oid_bytes)
    except (struct.error, IndexError, ValueError) as error:
        raise NotAnIndex from error


def _parse(data: bytes, oid_bytes: int) -> Index:
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise NotAnIndex
    index = Index()
    at = _HEADER.size
    name = b""
    for _ in range(count):
        stat = _STAT.unpack_from(data, at)
        oid_at = at + _STAT.size
        flags_at = oid_at + oid_bytes
        flags = data[flags_at] << 8 | data[flags_at + 1]
        name_at = flags_at + 2
        extended = 0
        if flags & _FLAG_EXTENDED:
            extended = data[name_at] << 8 | data[name_at + 1]
            name_at += 2
        if version == 4:
            strip, name_at = _variable_width(data, name_at)
            end = data.index(0, name_at)
            name = name[: len(name) - strip] + data[name_at:end]
            at = end + 1
        else:
            length = flags & _NAME_LENGTH
            end = name_at + length if length < _NAME_LENGTH else data.index(0, name_at)
            name = data[name_at:end]
            at += (end - at + 8) & ~7  # padded with 1 to 8 NULs to a multiple of eight
        _note(index, name, stat, data[oid_at:flags_at], flags, extended)
    if at > len(data) - oid_bytes:
        raise NotAnIndex  # torn: the checksum of the whole ends it
    _read_extensions(index, data, at, oid_bytes)
    return index


def _note(index: Index, name: bytes, stat: tuple[int, ...], oid: bytes, flags: int, extended: int) -> None:
    mode = stat[6]
    if flags & _STAGE:
        index.conflicts.add(name)
    elif mode == _MODE_FOLDER:
        index.sparse_folders.add(name.rstrip(b"/"))
    elif extended & _EXTENDED_INTENT_TO_ADD:
        index.intended.add(name)
    else:
        flag = ASSUME_UNCHANGED if flags & _FLAG_ASSUME_VALID else None
        if extended & _EXTENDED_SKIP_WORKTREE:
            flag = SKIP_WORKTREE
        index.tracked[name] = Tracked(mode, oid.hex().encode(), stat[9], flag, stat[:6])


def _variable_width(data: bytes, at: int) -> tuple[int, int]:
    """Read the offset encoding that version 4 uses for the prefix length (gitformat-index(5))."""
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at


def _read_extensions(index: Index, data: bytes, at: int, oid_bytes: int) -> None:
    while at + 8 <= len(data) - oid_bytes:
        signature = data[at : at + 4]
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        if signature == b"link":
            index.is_split = True
        at += 8 + size
