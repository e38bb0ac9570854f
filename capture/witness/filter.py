"""The seccomp filter as a program for the kernel: which calls are told to the supervisor. Pure.

A call that cannot change a file is allowed and costs a comparison, or nothing where the kernel caches such answers
(seccomp's action cache, since 5.11: numbers whose answer no argument decides). An architecture whose calls are not
known is told call by call, so that it cannot slip past unseen.
"""

from __future__ import annotations

import errno
import struct

from .calls import IO_URING_SETUP, WRITE_FLAGS, X32_BIT, Form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from .calls import Call, Machine

# linux/bpf_common.h
_LOAD, _EQUAL, _ANY_BIT, _RETURN, _AND, _JUMP = 0x20, 0x15, 0x45, 0x06, 0x54, 0x05
_ALLOW = 0x7FFF0000  # linux/seccomp.h
_ERRNO = 0x00050000
NOTIFY = 0x7FC00000
ALLOW = _ALLOW
REFUSE_ENOSYS = _ERRNO | errno.ENOSYS
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; both machines store the low half first

Instruction = tuple[int, int, int, int]


def program(machine: Machine, forms: Container[str]) -> list[Instruction]:
    """Return the filter for a machine as (code, jump if true, jump if false, value); `forms` are those told."""
    code: list[Instruction] = [(_LOAD, 0, 0, _ARCH_AT)]
    for arch, table in machine.tables.items():
        block = _block(table, forms)
        code += [(_EQUAL, 1, 0, arch), (_JUMP, 0, 0, len(block)), *block]
    code.append((_RETURN, 0, 0, NOTIFY))
    return code


def packed(code: list[Instruction]) -> bytes:
    """As an array of struct sock_filter (linux/filter.h)."""
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _block(table: Mapping[int, Call], forms: Container[str]) -> list[Instruction]:
    code: list[Instruction] = [(_LOAD, 0, 0, _NUMBER_AT), (_AND, 0, 0, ~X32_BIT & 0xFFFFFFFF)]
    for number, call in table.items():
        if call.form in forms:
            action = _action(call)
            code += [(_EQUAL, 0, len(action), number), *action]
    code += [(_EQUAL, 0, 1, IO_URING_SETUP), (_RETURN, 0, 0, REFUSE_ENOSYS), (_RETURN, 0, 0, _ALLOW)]
    return code


def _action(call: Call) -> list[Instruction]:
    """Tell of it; where its flags are an argument, only if they can write."""
    if call.flags is not None and (call.form == Form.OPEN or call.name == "open_by_handle_at"):
        return [
            (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * call.flags),
            (_ANY_BIT, 0, 1, WRITE_FLAGS),
            (_RETURN, 0, 0, NOTIFY),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [(_RETURN, 0, 0, NOTIFY)]
