"""A supervised command's lines come through, and all its processes end with the process that started its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from components.core import supervisor

# The command of a shard: it and a child of its own write down who they are; `{ignore}` makes both deaf to SIGTERM.
_SLEEPER = """
import os, signal, subprocess, sys, time
{ignore}
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, __file__])
open(f"pid-{{len(sys.argv)}}.txt", "w").write(str(os.getpid()))
time.sleep(120)
"""
_DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
# As torchrun's ranks: in a session of its own, and its parent dies without telling it.
_LAUNCHER = """
import subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
open("rank.txt", "w").write(str(rank.pid))
{then}
"""
_PARENT = "import os, subprocess, sys; subprocess.run([sys.argv[1], sys.argv[2], str(os.getpid()), *sys.argv[3:]])"


def _wait(what: str, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline, f"{what} took too long"
        time.sleep(0.02)


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _run(folder: Path, code: str) -> tuple[subprocess.CompletedProcess[str], str]:
    token = folder / "token"
    token.touch()
    command = [sys.executable, supervisor.__file__, str(os.getpid()), "1", str(folder), str(token)]
    done = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done, (folder / supervisor.LAST).read_text()


def test_lines_come_through_and_a_file_holds_the_last(tmp_path: Path) -> None:
    done, last = _run(
        tmp_path, "import os, sys; print('1%\\r2%\\n', file=sys.stderr); print(os.getcwd()); print('end')"
    )
    assert done.stdout.splitlines() == ["1%", "2%", str(tmp_path), "end"]
    assert (done.returncode, last) == (0, "end")


def test_what_a_command_said_is_kept_when_it_is_stopped_as_it_ends(tmp_path: Path) -> None:
    done, last = _run(tmp_path, "import os; print('end', flush=True); os.unlink('token'); os._exit(0)")
    assert (done.returncode, last) == (0, "end")


def test_exit_codes_come_through_and_signals_as_shells_tell_them(tmp_path: Path) -> None:
    assert _run(tmp_path, "raise SystemExit(7)")[0].returncode == 7
    assert _run(tmp_path, "import os; os.kill(os.getpid(), 9)")[0].returncode == 128 + 9


@pytest.mark.integration
@pytest.mark.parametrize(("ignore", "grace"), [("", "20"), (_DEAF, "0.3")], ids=["listens", "deaf"])
@pytest.mark.parametrize("by", ["the death of its parent", "its token's removal"])
def test_command_and_its_children_are_ended_by(tmp_path: Path, ignore: str, grace: str, by: str) -> None:
    (tmp_path / "token").touch()
    (tmp_path / "sleeper.py").write_text(_SLEEPER.format(ignore=ignore))
    command_line = [sys.executable, supervisor.__file__, grace, str(tmp_path), str(tmp_path / "token")]
    command = [sys.executable, "sleeper.py", "parent"]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, *command_line, *command])
    files = [tmp_path / "pid-1.txt", tmp_path / "pid-2.txt"]
    _wait("the command's start", lambda: all(file.exists() and file.read_text() for file in files))
    pids = [int(file.read_text()) for file in files]
    supervising = psutil.Process(pids[1]).ppid()
    assert os.getpgid(pids[0]) == supervising
    if by == "its token's removal":
        (tmp_path / "token").unlink()
    else:
        parent.send_signal(signal.SIGKILL)
    _wait("the end", lambda: all(_gone(pid) for pid in (*pids, supervising)))
    parent.kill()
    parent.wait()


@pytest.mark.integration
@pytest.mark.parametrize("then", ["time.sleep(120)", "sys.exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_processes_in_other_sessions_end_with_their_command(tmp_path: Path, then: str) -> None:
    token = tmp_path / "token"
    token.touch()
    command_line = [sys.executable, supervisor.__file__, str(os.getpid()), "20", str(tmp_path), str(token)]
    supervising = subprocess.Popen([*command_line, sys.executable, "-c", _LAUNCHER.format(then=then)], process_group=0)
    file = tmp_path / "rank.txt"
    _wait("the rank's start", lambda: file.exists() and file.read_text() != "")
    if "sleep" in then:
        supervising.terminate()
    supervising.wait(timeout=60)
    assert _gone(int(file.read_text()))


def test_a_stopped_command_may_write_down_what_it_knows(tmp_path: Path) -> None:
    # Its launcher dies at once, as DVC does; the work itself needs a moment.
    work = (
        "import signal, sys, time; from pathlib import Path\n"
        "def end(*_): time.sleep(1); Path('killed.txt').touch(); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end); Path('ready.txt').touch(); time.sleep(120)"
    )
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    token = tmp_path / "token"
    token.touch()
    command_line = [sys.executable, supervisor.__file__, str(os.getpid()), "60", str(tmp_path), str(token)]
    supervising = subprocess.Popen([*command_line, sys.executable, "-c", launcher], process_group=0)
    _wait("the start", (tmp_path / "ready.txt").exists)
    token.unlink()
    assert supervising.wait(timeout=60) != 0
    assert (tmp_path / "killed.txt").exists()
