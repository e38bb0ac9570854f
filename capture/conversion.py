"""Would Git convert this path, and do its bytes follow from the blob all the same? Pure.

A clean file is Git's blob only if nothing converts it. Where something may, the size that the file had decides:
cleaning a file (worktree to blob) only ever takes bytes away when it turns CRLF into LF, or `$Id: … $` into `$Id$`.
So equal sizes mean equal bytes; and when the size is the blob's plus one for each LF, every LF was a CRLF.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.git import Repository

ATTRIBUTES = (b"text", b"crlf", b"eol", b"ident", b"filter", b"working-tree-encoding")
"""The attributes that make Git convert (gitattributes(5)); `crlf` is the old name of `text`."""
_UNSPECIFIED = b"unspecified"
_UNSET = b"unset"
_PLAIN = (_UNSPECIFIED, _UNSET, b"set")


def opaque_conversion(attributes: Mapping[bytes, bytes], repository: Repository) -> str | None:
    """Name the attribute whose conversion nobody can follow from sizes: `filter` or `working-tree-encoding`."""
    driver = attributes.get(b"filter", _UNSPECIFIED)
    if driver not in _PLAIN and repository.may_run_filter(driver):
        return "filter"
    encoding = attributes.get(b"working-tree-encoding", _UNSPECIFIED)
    if encoding not in _PLAIN and encoding.lower() not in (b"utf-8", b"utf8"):
        return "working-tree-encoding"
    return None


def converts_line_ends(attributes: Mapping[bytes, bytes], repository: Repository) -> bool:
    """Say whether Git may convert the line ends of a path with these attributes."""
    text = attributes.get(b"text", _UNSPECIFIED)
    if text == _UNSPECIFIED:
        text = attributes.get(b"crlf", _UNSPECIFIED)
    if text == _UNSET:
        return False
    return (
        text != _UNSPECIFIED or attributes.get(b"eol", _UNSPECIFIED) != _UNSPECIFIED or repository.converts_line_ends
    )


def exact_bytes(
    blob: bytes, size_bytes: int | None, attributes: Mapping[bytes, bytes], repository: Repository
) -> tuple[bytes | None, str | None]:
    """The bytes that a clean file of this size had; else None and the name of what may have converted it.

    `size_bytes` is None where nobody noted the size.
    """
    opaque = opaque_conversion(attributes, repository)
    if opaque is not None:
        return None, opaque
    if size_bytes is not None and size_bytes == len(blob):
        return blob, None
    line_ends = converts_line_ends(attributes, repository)
    ident = attributes.get(b"ident") == b"set" and b"$Id" in blob
    if size_bytes is None:
        return (blob, None) if not line_ends and not ident else (None, "text" if line_ends else "ident")
    if ident:
        return None, "ident"
    if line_ends and b"\r" not in blob and size_bytes == len(blob) + blob.count(b"\n"):
        return blob.replace(b"\n", b"\r\n"), None
    return None, "text" if line_ends else "size"
