"""The traced witness: what it sees, what it leaves as it is, and what it says where it cannot see."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ckpt_run.capture import witness
from ckpt_run.capture.model import By
from ckpt_run.capture.witness import Gap, GapKind, Touch, calls, places
from ckpt_run.capture.witness import filter as bpf
from ckpt_run.capture.witness.session import Session

ROOT = Path(__file__).resolve().parent.parent
needs_witness = pytest.mark.skipif(not witness.probe().works, reason=f"no traced witness here: {witness.probe()}")
FORMS = {value for name, value in vars(calls.Form).items() if name.isupper()}


class Ran:
    """A traced command that has ended: its wait status, its trace, its session."""

    def __init__(self, status: int, trace: witness.Trace, session: object) -> None:
        self.status = status
        self.trace = trace
        self.session = session


def begin(top: Path, journal: Path, argv: list[str]) -> tuple[Session, int]:
    """Start a command in `top` under the witness."""
    session = witness.start(os.fsencode(os.path.realpath(top)), os.fsencode(journal))
    assert session is not None
    program = os.fsencode(shutil.which(argv[0]) or argv[0])
    here = os.getcwd()
    os.chdir(top)
    try:
        pid = session.spawn(program, [os.fsencode(word) for word in argv], dict(os.environb))
    finally:
        os.chdir(here)
    return session, pid


def run(top: Path, journal: Path, *argv: str) -> Ran:
    """Run a command in `top` under the witness to the end of its last process."""
    session, _ = begin(top, journal, list(argv))
    status = session.wait()
    session.end(wait=True)
    return Ran(status, witness.read_journal(os.fsencode(journal)), session)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A project's top level."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a journal goes: outside the project."""
    return tmp_path / "journal"


def answer(program: list[bpf.Instruction], arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Execute a filter as the kernel does (classic BPF) and return its answer."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    at = value = 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == 0x20:
            value = int.from_bytes(data[operand : operand + 4], "little")
        elif code == 0x54:
            value &= operand
        elif code == 0x05:
            at += operand
        elif code == 0x15:
            at += if_true if value == operand else if_false
        elif code == 0x45:
            at += if_true if value & operand else if_false
        else:
            assert code == 0x06
            return operand


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_the_filter_tells_each_call_of_its_table_and_allows_all_others(name: str) -> None:
    machine = calls.machine(name)
    assert machine is not None
    program = bpf.program(machine, FORMS)
    assert len(program) < 4096  # BPF_MAXINSNS
    for arch, table in machine.tables.items():
        for number in range(600):
            expected = bpf.NOTIFY if number in table else bpf.ALLOW
            if number == calls.IO_URING_SETUP:
                expected = bpf.REFUSE_ENOSYS
            assert answer(program, arch, number, (os.O_RDWR,) * 6) == expected, (arch, number)
        assert answer(program, arch, 9999) == bpf.ALLOW


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_the_filter_lets_reading_opens_pass_and_knows_both_halves_of_a_machine(name: str) -> None:
    machine = calls.machine(name)
    assert machine is not None
    program = bpf.program(machine, FORMS)
    arch, table = next(iter(machine.tables.items()))
    numbers = {call.name: number for number, call in table.items()}
    for flags, told in ((0, False), (os.O_CLOEXEC, False), (1, True), (2, True), (0o100, True), (0o1000, True)):
        expected = bpf.NOTIFY if told else bpf.ALLOW
        assert answer(program, arch, numbers["openat"], (0, 0, flags)) == expected
        assert answer(program, arch, numbers["openat"] | calls.X32_BIT, (0, 0, flags)) == expected
    assert answer(program, 0xDEAD, 1) == bpf.NOTIFY


def test_a_machine_that_is_not_known_has_no_witness() -> None:
    assert calls.machine("riscv64") is None
    assert calls.machine("i686") is None


PATHS = {
    "a file in a folder": ("echo x > sub/new", {b"sub/new"}),
    "a path with dots": ("echo x > sub/../sub/./new", {b"sub/new"}),
    "through a link to a folder": ("echo x > way/new", {b"sub/new"}),
    "through a link to a file": ("echo x > link", {b"file"}),
    "through a link that dangles": ("echo x > dangling", {b"made"}),
    "a link itself": ("rm link", {b"link"}),
    "from another folder": ("cd sub/inner && echo x > ../new", {b"sub/new"}),
    "from outside": ("cd / && echo x > $TOP/new", {b"new"}),
    "from outside through a link": ("cd $OUT && ln -s $TOP back && echo x > back/new", {b"new"}),
    "outside": ("echo x > $OUT/new; mkdir $OUT/made; rm -r $OUT/made", set()),
    "outside through a link inside": ("ln -s $OUT out && echo x > out/new", {b"out"}),
    "what stdout is": ("exec > new; echo x > /dev/stdout; echo y > /proc/self/fd/1", {b"new"}),
    "a name at its end": ("mkdir sub/made/ && rmdir sub/made/", {b"sub/made"}),
    "odd names": ("echo x > \"$(printf 'a\\nb \\377')\"", {b"a\nb \xff"}),
    "a folder that moves": ("mv sub moved && echo x > moved/file && mv moved/file .", {b"sub", b"moved"}),
    "Git's own files": ("mkdir .git && echo x > .git/index", set()),
    "a failed call": ("echo x 2>&- > missing/new", set()),
    "permissions": ("chmod 600 file; chmod 700 sub; chmod 700 .", {b"file", b"sub"}),
    "a removed folder": ("mkdir gone && cd gone && rmdir ../gone && echo x 2>&- > new", {b"gone"}),
}


@needs_witness
@pytest.mark.parametrize("case", PATHS)
def test_a_path_is_found_however_it_is_written(case: str, top: Path, journal: Path, tmp_path: Path) -> None:
    text, expected = PATHS[case]
    outside = tmp_path / "outside"
    outside.mkdir()
    (top / "sub" / "inner").mkdir(parents=True)
    (top / "file").write_text("before\n")
    for link, target in {"way": "sub", "link": "file", "dangling": "made"}.items():
        (top / link).symlink_to(target)
    text = f"TOP={os.path.realpath(top)}; OUT={os.path.realpath(outside)}; {text}"
    trace = run(top, journal, "sh", "-c", text).trace
    more = {b"moved/file", b"file"} if "moved" in text else set()
    assert trace.touched.keys() == expected | more
    assert not trace.gaps
    assert trace.trees == ({b"sub", b"moved"} if "moved" in text else set())


RAW = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
for line in sys.stdin:
    name, number, *words = line.split()
    values, kept = [], []
    for word in words:
        if word.startswith("p:"):
            kept.append(ctypes.create_string_buffer(word[2:].encode()))
        elif word == "how":
            kept.append(ctypes.create_string_buffer(struct.pack("QQQ", os.O_WRONLY | os.O_CREAT, 0o644, 0)))
        elif word.startswith("fd:"):
            values.append(ctypes.c_long(os.open(word[3:], os.O_RDONLY)))
            continue
        else:
            values.append(ctypes.c_long(int(word)))
            continue
        values.append(ctypes.c_void_p(ctypes.addressof(kept[-1])))
    libc.syscall(ctypes.c_long(int(number)), *values)
"""


@needs_witness
def test_each_call_that_can_change_a_file_is_seen_with_its_own_path(top: Path, journal: Path) -> None:
    machine = calls.machine(platform.machine())
    assert machine is not None
    lines, expected = [], set()
    for number, call in next(iter(machine.tables.values())).items():
        words = ["0"] * 6
        for index, (folder, path) in enumerate(call.places):
            name = f"{call.name}-{index}"
            (top / name).write_text("x")
            words[path] = f"p:{name}"
            if folder is not None:
                words[folder] = "-100"
            expected.add(name.encode())
        if call.form == calls.Form.OPEN:
            words[call.flags or 0] = str(os.O_WRONLY)
        elif call.form == calls.Form.OPEN_HOW:
            words[2:4] = ["how", "24"]
        elif call.form == calls.Form.DESCRIPTOR:
            (top / call.name).write_text("x")
            words[0] = f"fd:{call.name}"
            expected.add(call.name.encode())
        elif call.form in {calls.Form.GAP, calls.Form.EXECUTE, calls.Form.CONNECT, calls.Form.LISTEN}:
            expected -= {f"{call.name}-{index}".encode() for index in range(len(call.places))}
            continue
        lines.append(" ".join([call.name, str(number), *words]))
    (journal.parent / "calls").write_text("\n".join(lines))
    trace = run(top, journal, "sh", "-c", f"exec {sys.executable} -c '{RAW}' < {journal.parent}/calls").trace
    assert expected - trace.touched.keys() == set()
    assert not trace.gaps


INT_80 = """
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
int main(int count, char **words) {
    char *low = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(low, words[1]);
    long got;
    __asm__ volatile("int $0x80" : "=a"(got) : "a"(5), "b"(low), "c"(O_CREAT | O_WRONLY), "d"(0644) : "memory");
    return got < 0;
}
"""


@needs_witness
@pytest.mark.skipif(platform.machine() != "x86_64", reason="a door of x86")
def test_a_call_through_the_32_bit_door_is_seen(top: Path, journal: Path, tmp_path: Path) -> None:
    (tmp_path / "door.c").write_text(INT_80)
    if subprocess.run(["gcc", "-o", tmp_path / "door", tmp_path / "door.c"], check=False).returncode:
        pytest.skip("no compiler")
    if subprocess.run([tmp_path / "door", tmp_path / "tried"], check=False).returncode:
        pytest.skip("this kernel has no 32-bit calls")
    assert run(top, journal, str(tmp_path / "door"), "written").trace.touched.keys() == {b"written"}


@needs_witness
@pytest.mark.skipif(platform.machine() != "x86_64", reason="a door of x86")
def test_calls_of_an_architecture_that_is_not_known_go_on_and_are_a_gap(
    top: Path, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "door.c").write_text(INT_80)
    if subprocess.run(["gcc", "-o", tmp_path / "door", tmp_path / "door.c"], check=False).returncode:
        pytest.skip("no compiler")
    if subprocess.run([tmp_path / "door", tmp_path / "tried"], check=False).returncode:
        pytest.skip("this kernel has no 32-bit calls")
    known = calls.machine("x86_64")
    assert known is not None
    del known.tables[calls.ARCH_I386]
    monkeypatch.setattr(calls, "machine", lambda name: known)
    ran = run(top, journal, "sh", "-c", f"{tmp_path}/door hidden && echo > seen")
    assert ran.status == 0
    assert ran.trace.gaps == [Gap(GapKind.FOREIGN_CALLS, b"0x40000003")]
    assert ran.trace.touched.keys() == {b"seen"}
    assert witness.attribute([b"hidden", b"seen"], ran.trace) == {b"hidden": By.TIME, b"seen": By.TRACED}


@needs_witness
def test_io_uring_cannot_slip_past(top: Path, journal: Path) -> None:
    program = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
        "print(libc.syscall(425, 8, ctypes.create_string_buffer(256)), ctypes.get_errno())"
    )
    run(top, journal, "sh", "-c", f'{sys.executable} -c "{program}" > answer')
    assert (top / "answer").read_text().split() == ["-1", str(errno.ENOSYS)]


@needs_witness
def test_a_file_the_command_is_started_with_counts_as_touched(top: Path, journal: Path) -> None:
    stdout = os.dup(1)
    fd = os.open(top / "out", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.dup2(fd, 1)
        ran = run(top, journal, "echo", "hello")
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(fd)
    assert (top / "out").read_text() == "hello\n"
    assert ran.trace.touched == {b"out": {Touch.INHERITED}}


@needs_witness
def test_a_write_through_another_name_of_a_file_is_not_somebody_elses(
    top: Path, journal: Path, tmp_path: Path
) -> None:
    (top / "name").write_text("before\n")
    os.link(top / "name", tmp_path / "other")
    os.link(top / "name", top / "second")
    trace = run(top, journal, "sh", "-c", "echo x > second").trace
    info = (top / "name").stat()
    assert witness.attribute([b"name"], trace, {b"name": (info.st_dev, info.st_ino)}) == {b"name": By.TRACED}
    assert witness.attribute([b"name"], trace) == {b"name": By.TIME}


def test_attribution_is_never_more_certain_than_the_trace() -> None:
    trace = witness.Trace()
    trace.touched[b"a"] = {Touch.CONTENT}
    trace.trees.add(b"moved")
    trace.touched[b"moved"] = {Touch.TREE}
    changed = [b"a", b"moved/deep/file", b"moved-not", b"b"]
    complete = {b"a": By.TRACED, b"moved/deep/file": By.TRACED, b"moved-not": witness.OTHER, b"b": witness.OTHER}
    assert witness.attribute(changed, trace) == complete
    trace.gaps.append(Gap(GapKind.SERVER))
    doubtful = {path: By.TIME if by == witness.OTHER else by for path, by in complete.items()}
    assert witness.attribute(changed, trace) == doubtful
    assert witness.attribute(changed, None) == dict.fromkeys(changed, By.TIME)


def test_a_journal_that_breaks_off_or_is_missing_is_an_incomplete_trace(tmp_path: Path) -> None:
    assert witness.read_journal(os.fsencode(tmp_path / "none")).gaps[0].kind == GapKind.LOST
    (tmp_path / "junk").write_bytes(b"junk")
    assert witness.read_journal(os.fsencode(tmp_path / "junk")).gaps == [Gap(GapKind.LOST)]


@needs_witness
def test_each_cut_of_a_journal_is_read_and_doubted(top: Path, journal: Path) -> None:
    run(top, journal, "sh", "-c", "echo > a; echo > b")
    whole = journal.read_bytes()
    counts = set()
    for length in range(len(whole)):
        journal.write_bytes(whole[:length])
        trace = witness.read_journal(os.fsencode(journal))
        assert trace.complete == (length >= len(whole) - 17)  # only the last mark, that all have gone, may be missing
        counts.add(len(trace.touched))
    assert counts == {0, 1, 2}


def test_a_project_is_known_by_its_other_mounts_too() -> None:
    mounts = (
        b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 /home/u/p /mnt/my\\040p rw - ext4 /dev/a rw\n"
        b"3 1 8:1 /home /other rw - ext4 /dev/a rw\n4 1 8:1 /home/u/p/deep/er /sub rw - ext4 /dev/a rw\n"
        b"5 1 8:2 /home /no rw - ext4 /dev/b rw\n"
    )
    assert places.aliases(b"/home/u/p", mounts) == {
        b"/home/u/p/": b"",
        b"/mnt/my p/": b"",
        b"/other/u/p/": b"",
        b"/sub/": b"deep/er/",
    }


@pytest.mark.parametrize(
    ("system", "release", "machine", "why"),
    [
        ("darwin", "23.1.0", "arm64", witness.Why.NOT_LINUX),
        ("linux", "5.4.0-90-generic", "x86_64", witness.Why.KERNEL),
        ("linux", "4.19.0", "aarch64", witness.Why.KERNEL),
        ("linux", "6.1.0", "riscv64", witness.Why.MACHINE),
        ("linux", "5.5-rc1", "x86_64", None),
        ("linux", "10.0.1", "aarch64", None),
    ],
)
def test_where_it_cannot_work_nothing_is_started_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, machine: str, why: str | None
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", release, "", machine)))
    assert witness.possible().why == why
    if why is not None:
        assert witness.start(b"/nowhere", b"/nowhere/journal") is None
        assert witness.probe().why == why
