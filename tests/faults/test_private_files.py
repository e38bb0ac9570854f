"""Files of our own in the store: whole for every reader, and what a dead writer left does not pile up."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ckpt_run.capture import durable

from .disk import Died, FaultyDisk, at


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    durable.write_private(os.fsencode(tmp_path / "table"), b"old")
    return os.fsencode(tmp_path / "table")


def read(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("order", ["die", "die after"])
def test_a_writer_that_dies_leaves_at_most_one_sibling_and_the_next_one_uses_it(path: bytes, order: str) -> None:
    position = 0
    while True:
        position += 1
        with FaultyDisk(at(position, order)) as disk, suppress(Died):
            durable.write_private(path, b"dead")
        if not disk.is_dead:
            break
        assert read(path) in {b"old", b"dead"}
        assert len(os.listdir(os.path.dirname(path))) <= 2
        durable.write_private(path, b"old")
        assert os.listdir(os.path.dirname(path)) == [b"table"]
    assert position > 3


@pytest.mark.parametrize("operation", ["write", "rename", "fchmod", "ftruncate"])
def test_a_writer_that_fails_leaves_the_old_file_and_says_so(path: bytes, operation: str) -> None:
    def script(_: int, name: str) -> int | None:
        return errno.EIO if name == operation else None

    with FaultyDisk(script), pytest.raises(OSError, match=os.strerror(errno.EIO)):
        durable.write_private(path, b"new")
    assert read(path) == b"old"
    assert os.listdir(os.path.dirname(path)) == [b"table"]


def test_many_writers_of_one_path_never_mix_their_bytes(path: bytes) -> None:
    wholes = {bytes([number]) * 10_000 for number in range(8)}
    seen: set[bytes] = set()

    def write_often(whole: bytes) -> None:
        for _ in range(40):
            durable.write_private(path, whole)

    writers = [threading.Thread(target=write_often, args=(whole,)) for whole in wholes]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen.add(read(path))
    assert seen <= {b"old", *wholes}
    assert read(path) in wholes
    assert os.listdir(os.path.dirname(path)) == [b"table"]
    assert os.stat(path).st_mode & 0o777 == 0o600
