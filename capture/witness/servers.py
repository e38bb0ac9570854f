"""Did the command speak to a local server of somebody else? Such a server may write files for it, unseen.

A server that the command itself started is traced like the rest of it, so it is told apart by its listening socket.
What this does not see: datagrams, and connections that were open before the command started.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS_BYTES_MAX = 128  # struct sockaddr_storage
_UNIX, _INET, _INET6 = b"\1\0", b"\2\0", b"\n\0"
_LISTENING_UNIX = 0x10000  # __SO_ACCEPTCON, in the column Flags of /proc/net/unix
_LISTENING_TCP = b"0A"  # TCP_LISTEN
_HARMLESS = (  # they answer questions, and write nothing that a project holds
    b"/run/nscd/socket",
    b"/var/run/nscd/socket",
    b"/dev/log",
    b"/run/systemd/journal/",
    b"/run/systemd/userdb/",
    b"/run/systemd/resolve/",
    b"/tmp/.X11-unix/",
    b"@/tmp/.X11-unix/",
)
_LOOPBACK_MAPPED = bytes(10) + b"\xff\xff\x7f"
_LOOPBACK6 = bytes(15) + b"\1"


class Servers:
    """The listening sockets of the command."""

    __slots__ = ("_ours",)

    def __init__(self) -> None:
        """Start with none."""
        self._ours: set[bytes] = set()

    def listens(self, thread: int, descriptor: int) -> None:
        """Note a socket on which a process of the command is about to listen."""
        try:
            name = os.readlink(b"/proc/%d/fd/%d" % (thread, descriptor))
        except OSError:
            return  # the call will fail, or its server counts as somebody else's
        self._ours.add(name.removeprefix(b"socket:[").rstrip(b"]"))

    def foreign(self, thread: int, address: bytes) -> bytes | None:
        """Return the name of the local server at the address (a struct sockaddr) if it is somebody else's."""
        family = address[:2]
        if family == _UNIX:
            name = _unix_name(address)
            if name.startswith(_HARMLESS):
                return None
            found = [inode for inode, path in _unix_listeners(thread) if _same(path, name)]
        elif family in {_INET, _INET6} and _is_local(address):
            port = int.from_bytes(address[2:4], "big")
            name = b"port %d" % port
            found = [inode for inode, listening in _tcp_listeners(thread) if listening == port]
        else:
            return None
        return name if found and not self._ours.issuperset(found) else None


def _unix_name(address: bytes) -> bytes:
    path = address[2:]
    if path[:1] == b"\0":
        return b"@" + path[1:]
    return path.partition(b"\0")[0]


def _same(path: bytes, name: bytes) -> bool:
    """Whether a bound path, as it was written then, can be the one asked for, as it is written now."""
    if path[:1] == b"@" or name[:1] == b"@":
        return path == name
    return path == name or path.rpartition(b"/")[2] == name.rpartition(b"/")[2]


def _is_local(address: bytes) -> bool:
    if address[:2] == _INET:
        return address[4:5] in {b"\x7f", b"\0"}
    host = address[8:24]
    return host in {_LOOPBACK6, bytes(16)} or host.startswith(_LOOPBACK_MAPPED)


def _unix_listeners(thread: int) -> Iterator[tuple[bytes, bytes]]:
    for line in _lines(b"/proc/%d/net/unix" % thread):
        words = line.split(None, 7)
        if len(words) == 8 and int(words[3], 16) & _LISTENING_UNIX:
            yield words[6], words[7]


def _tcp_listeners(thread: int) -> Iterator[tuple[bytes, int]]:
    for table in (b"tcp", b"tcp6"):
        for line in _lines(b"/proc/%d/net/%b" % (thread, table)):
            words = line.split(None, 10)
            if len(words) > 9 and words[3] == _LISTENING_TCP:
                yield words[9], int(words[1].rpartition(b":")[2], 16)


def _lines(path: bytes) -> list[bytes]:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall().splitlines()[1:]
    except OSError:
        return []
