"""A traced command is the command it would be without: its end, its signals, its descriptors; and nothing hangs."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ckpt_run.capture import witness
from ckpt_run.capture.witness import Gap, GapKind, Why
from ckpt_run.capture.witness.session import Session

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not witness.probe().works, reason=f"no traced witness here: {witness.probe()}")

Begin = Callable[..., Session]


def until(holds: Callable[[], object]) -> None:
    """Wait until it holds, at most ten seconds."""
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    pytest.fail("it never came true")


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


@pytest.fixture
def begin(top: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Start a command in `top` under the witness; whatever is left of it is killed at the end."""
    monkeypatch.chdir(top)
    started: list[Session] = []

    def start(*argv: str) -> Session:
        session = witness.start(os.fsencode(os.path.realpath(top)), os.fsencode(journal))
        assert session is not None
        started.append(session)
        program = os.fsencode(shutil.which(argv[0]) or argv[0])
        session.spawn(program, [os.fsencode(word) for word in argv], dict(os.environb))
        return session

    yield start
    for session in started:
        session.end(wait=True)


def trace_of(journal: Path) -> witness.Trace:
    """Read the journal."""
    return witness.read_journal(os.fsencode(journal))


def test_the_probe_says_that_it_works() -> None:
    verdict = witness.probe()
    assert verdict.works
    assert verdict.why is None


@pytest.mark.parametrize("code", [0, 1, 2, 125, 255])
def test_an_exit_code_is_the_commands_own(begin: Begin, code: int) -> None:
    assert os.waitstatus_to_exitcode(begin("sh", "-c", f"exit {code}").wait()) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_that_ends_the_command_is_told(begin: Begin, number: int) -> None:
    status = begin("sh", "-c", f"ulimit -c 0; kill -{int(number)} $$").wait()
    assert os.waitstatus_to_exitcode(status) == -number


def test_what_cannot_be_executed_says_why_and_leaves_no_process(begin: Begin, top: Path) -> None:
    (top / "text").write_text("#!/nowhere/at/all\n")
    (top / "plain").write_bytes(b"\x7fELF not")
    for name in ("text", "plain"):
        (top / name).chmod(0o755)
    others = children()  # of tests before this one, in the same process
    for name, number in (("nothing", errno.ENOENT), ("text", errno.ENOENT), ("plain", errno.ENOEXEC)):
        with pytest.raises(OSError, match=name) as caught:
            begin(f"./{name}")
        assert caught.value.errno == number
    assert children() <= others


def children() -> set[int]:
    """The pids of this process's children, those that nobody waited for included."""
    return {child.pid for child in psutil.Process().children()}


def test_the_command_is_stopped_and_continued_as_any_other(begin: Begin, journal: Path) -> None:
    session = begin(sys.executable, "-c", "import time\nwhile True: open('a', 'w').close(); time.sleep(0.0001)")
    pid = session.command
    until(lambda: trace_of(journal).touched)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: session.waitpid(pid, os.WNOHANG | os.WUNTRACED) == (pid, signal.SIGSTOP << 8 | 0x7F))
    assert session.waitpid(pid, os.WNOHANG | os.WUNTRACED) == (0, 0)
    assert session.waitpid(pid, os.WNOHANG | os.WCONTINUED) == (0, 0)
    os.kill(pid, signal.SIGCONT)
    until(lambda: session.waitpid(pid, os.WNOHANG | os.WCONTINUED) == (pid, 0xFFFF))
    assert session.waitpid(pid, os.WNOHANG | os.WCONTINUED) == (0, 0)
    os.kill(pid, signal.SIGTERM)
    until(lambda: session.waitpid(pid, os.WNOHANG) == (pid, signal.SIGTERM))
    session.end()
    assert trace_of(journal).complete


def test_the_command_gets_the_signals_mask_and_defaults_it_was_to_get(
    top: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = witness.start(os.fsencode(top), os.fsencode(journal))
    assert session is not None
    monkeypatch.chdir(top)
    argv = [b"cp", b"/proc/self/status", b"status"]
    session.spawn(
        os.fsencode(shutil.which("cp") or ""),
        argv,
        dict(os.environb),
        setsigmask=[signal.SIGUSR1],
        setsigdef=[signal.SIGPIPE],
    )
    assert session.wait() == 0
    session.end()
    fields = dict(line.split(":", 1) for line in (top / "status").read_text().splitlines())
    assert int(fields["SigBlk"], 16) == 1 << signal.SIGUSR1 - 1
    assert not int(fields["SigIgn"], 16) & 1 << signal.SIGPIPE - 1


def test_the_command_and_its_supervisor_hold_only_their_own_descriptors(begin: Begin, top: Path) -> None:
    extra = os.open(top, os.O_RDONLY)
    given = {int(name) for name in os.listdir("/proc/self/fd")}
    given = {fd for fd in given if os.path.exists(f"/proc/self/fd/{fd}") and os.get_inheritable(fd)}
    session = begin("sh", "-c", "ls /proc/self/fd > fds; exec sleep 10")
    until(lambda: (top / "fds").exists() and (top / "fds").read_text().count("\n") >= 4)
    os.close(extra)
    assert len({int(name) for name in (top / "fds").read_text().split()} - given) == 1  # the listing's
    folder = f"/proc/{session.supervisor}/fd"
    held = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
    assert held.count("/dev/null") == 3
    assert len(held) == 6, held  # the listener, the journal, the pipe to the wrapper
    os.kill(session.command, signal.SIGKILL)
    session.wait()


def test_a_supervisor_of_survivors_keeps_no_reader_waiting(begin: Begin, top: Path, journal: Path) -> None:
    reading, writing = os.pipe()
    stdout = os.dup(1)
    os.dup2(writing, 1)
    os.close(writing)
    try:
        session = begin("sh", "-c", "echo done; (exec >/dev/null; sleep 0.3; echo late > late) & ")
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    with open(reading, "rb") as pipe:
        started = time.monotonic()
        assert pipe.read() == b"done\n"
    session.wait()
    assert session.survivors
    session.end()
    assert time.monotonic() - started < 0.3
    assert Gap(GapKind.SURVIVORS) in trace_of(journal).gaps
    until(lambda: trace_of(journal).closed)
    assert trace_of(journal).later.keys() == {b"late"}
    assert b"late" not in trace_of(journal).touched


def test_a_killed_supervisor_hangs_nothing_and_the_trace_says_so(begin: Begin, journal: Path) -> None:
    program = textwrap.dedent("""
        import time
        failed = 0
        for number in range(10_000):
            try:
                open(f"f{number}", "w").close()
            except OSError as error:
                assert error.errno == 38, error
                raise SystemExit(7)
            time.sleep(0.0001)
    """)
    session = begin(sys.executable, "-c", program)
    until(lambda: trace_of(journal).touched)
    os.kill(session.supervisor, signal.SIGKILL)
    pid = session.command
    ended: list[int] = []
    until(lambda: (found := session.waitpid(pid, os.WNOHANG))[0] and (ended.append(found[1]) or True))
    assert os.waitstatus_to_exitcode(ended[0]) == 7
    assert Gap(GapKind.LOST) in trace_of(journal).gaps


def test_a_killed_wrapper_leaves_the_command_and_its_trace_whole(top: Path, journal: Path) -> None:
    program = textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(ROOT / "src")!r})
        from ckpt_run.capture import witness
        session = witness.start({os.fsencode(top)!r}, {os.fsencode(journal)!r})
        text = b"echo > first; sleep 0.3; echo > second; echo > over"
        session.spawn(b"/bin/sh", [b"sh", b"-c", text], {{}})
        session.wait()
    """)
    with subprocess.Popen([sys.executable, "-c", program], cwd=top, stdin=subprocess.DEVNULL) as wrapper:
        until((top / "first").exists)
        wrapper.kill()
    until(lambda: trace_of(journal).closed)
    assert trace_of(journal).touched.keys() == {b"first", b"second", b"over"}
    assert trace_of(journal).complete


def test_a_nested_witness_is_refused_and_the_outer_one_sees_all(begin: Begin, top: Path, journal: Path) -> None:
    program = textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {str(ROOT / "src")!r})
        from ckpt_run.capture import witness
        session = witness.start({os.fsencode(top)!r}, {os.fsencode(top)!r} + b"/inner")
        session.spawn(b"/bin/sh", [b"sh", b"-c", b"echo > written; exit 5"], {{}})
        print(session.verdict.why, os.waitstatus_to_exitcode(session.wait()), file=open("said", "w"))
        session.end()
    """)
    assert begin(sys.executable, "-c", program).wait() == 0
    assert (top / "said").read_text().split() == [Why.NESTED, "5"]
    assert trace_of(journal).touched.keys() >= {b"written", b"said"}


def test_a_program_with_a_filter_of_its_own_works(begin: Begin, journal: Path) -> None:
    program = textwrap.dedent("""
        import ctypes, struct
        libc = ctypes.CDLL(None, use_errno=True)
        code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000))
        program = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(code)))
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, program) == 0
        open("written", "w").close()
    """)
    assert begin(sys.executable, "-c", program).wait() == 0
    assert trace_of(journal).has_touched(b"written")


def server(path: str, text: str) -> str:
    """A program that opens a server on a unix socket and then executes the text."""
    return f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind({path!r})\ns.listen()\n{text}"


def test_a_word_with_somebody_elses_server_is_a_gap_and_with_its_own_is_none(
    begin: Begin, tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = "c = socket.socket(socket.AF_UNIX)\nc.connect({0!r})"
    own = str(tmp_path / "own")
    assert begin(sys.executable, "-c", server(own, asks.format(own))).wait() == 0
    assert trace_of(journal).complete
    foreign = str(tmp_path / "foreign")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(foreign)
        listener.listen()
        assert begin(sys.executable, "-c", "import socket\n" + asks.format(foreign)).wait() == 0
    assert trace_of(journal).gaps == [Gap(GapKind.SERVER, foreign.encode())]


def test_a_server_on_the_loopback_is_told_apart_too(begin: Begin, journal: Path) -> None:
    asks = "import socket; socket.create_connection(('127.0.0.1', {}))"
    own = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert begin(sys.executable, "-c", own).wait() == 0
    assert trace_of(journal).complete
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert begin(sys.executable, "-c", asks.format(port)).wait() == 0
    assert trace_of(journal).gaps == [Gap(GapKind.SERVER, b"port %d" % port)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_mount_is_a_gap(begin: Begin, journal: Path) -> None:
    begin("unshare", "--mount", "sh", "-c", "mount -t tmpfs none . && echo > hidden").wait()
    assert GapKind.MOUNTS in {gap.kind for gap in trace_of(journal).gaps}


def test_once_a_file_system_may_be_the_commands_own_nothing_is_looked_up_any_more(
    begin: Begin, top: Path, journal: Path
) -> None:
    """To look into it would wait for its server, which waits for us; the mount need not succeed."""
    begin(
        sys.executable,
        "-c",
        "import ctypes; ctypes.CDLL(None).mount(b'x', b'/nowhere', b'fuse.x', 0, None); open('after', 'w').close()",
    ).wait()
    assert (top / "after").exists()
    trace = trace_of(journal)
    assert trace.gaps == [Gap(GapKind.MOUNTS, b"mount")]
    assert not trace.touched


def without_capabilities(job: Callable[[], None]) -> int:
    """Do the job in a child that has no capabilities, and return its exit code."""
    pid = os.fork()
    if not pid:
        try:
            header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))  # linux/capability.h, version 3
            if ctypes.CDLL(None).capset(header, ctypes.create_string_buffer(24)) == 0:
                job()
                os._exit(0)
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_without_privileges_everything_is_seen_and_privileged_programs_are_named(top: Path, journal: Path) -> None:
    """The whole of it once more, for a process that may only filter under no_new_privs."""
    (top / "special").write_text("#!/bin/sh\necho > by-special\n")
    (top / "special").chmod(0o4755)

    def job() -> None:
        assert not witness.is_privileged()
        session = witness.start(os.fsencode(top), os.fsencode(journal))
        assert session is not None
        os.chdir(top)
        text = b"grep NoNewPrivs /proc/self/status > status; ./special; echo > last"
        session.spawn(b"/bin/sh", [b"sh", b"-c", text], dict(os.environb))
        assert session.verdict.works
        assert session.verdict.no_new_privs
        assert session.wait() == 0
        session.end()

    assert without_capabilities(job) == 0
    trace = trace_of(journal)
    assert trace.complete
    assert trace.touched.keys() == {b"status", b"by-special", b"last"}
    assert (top / "status").read_text().split()[1] == "1"
    if not os.statvfs(top).f_flag & os.ST_NOSUID:
        assert trace.privileged == [b"./special"]


def test_a_process_that_does_not_let_itself_be_read_is_a_gap(top: Path, journal: Path) -> None:
    program = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); open('hidden', 'w').close()"

    def job() -> None:
        session = witness.start(os.fsencode(top), os.fsencode(journal))
        assert session is not None
        os.chdir(top)
        argv = [os.fsencode(word) for word in (sys.executable, "-c", program)]
        session.spawn(argv[0], argv, dict(os.environb))
        assert session.wait() == 0
        session.end()

    assert without_capabilities(job) == 0
    assert (top / "hidden").exists()
    assert {gap.kind for gap in trace_of(journal).gaps} == {GapKind.UNREADABLE}


def test_a_privileged_program_is_found_in_any_word_of_the_command(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if os.statvfs(programs).f_flag & os.ST_NOSUID:
        pytest.skip("setuid has no power on this file system")
    for name, mode in (("plain", 0o755), ("lifted", 0o4755), ("group", 0o2755), ("data", 0o4644)):
        (programs / name).write_text("")
        (programs / name).chmod(mode)
    environment = {b"PATH": b"/nowhere:" + os.fsencode(programs)}

    def needs(*argv: bytes) -> bytes | None:
        return witness.needs_privileges(argv, environment)

    assert needs(b"plain", b"data") is None
    assert needs(b"lifted") == os.fsencode(programs / "lifted")
    assert needs(b"sh", b"-c", b"cd x&&lifted -n 'a b'") == os.fsencode(programs / "lifted")
    assert needs(b"env", os.fsencode(programs / "group")) == os.fsencode(programs / "group")
