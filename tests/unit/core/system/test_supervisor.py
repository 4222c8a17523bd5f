"""All processes of a supervised command end with it; failed calls are repeated for a limited time."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from components.core.system import supervisor
from components.core.system.retry import retrying
from tests.support.waiting import wait_until

# The command and its child write down their process ids and ignore SIGTERM.
_SLEEPER = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, __file__])
open(f"pid-{len(sys.argv)}.txt", "w").write(str(os.getpid()))
time.sleep(120)
"""
# Like torchrun's ranks: in a session of their own, and their parent dies without ending them.
_LAUNCHER = """
import subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
open("rank.txt", "w").write(str(rank.pid))
{then}
"""
# Like DVC, the launcher dies at once; the work needs a moment.
_WORK = """
import signal, sys, time; from pathlib import Path
def end(*_): time.sleep(1); Path('saved.txt').touch(); sys.exit(3)
signal.signal(signal.SIGTERM, end); Path('ready.txt').touch(); time.sleep(120)
"""
_PARENT = "import os, subprocess, sys; subprocess.run([sys.argv[1], sys.argv[2], str(os.getpid()), *sys.argv[3:]])"


def _ids(*files: Path) -> list[int]:
    """The process ids in these files, as soon as they are there."""
    wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60)
    return [int(file.read_text()) for file in files]


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _supervised(code: str, grace: str = "20") -> list[str]:
    return [sys.executable, supervisor.__file__, str(os.getpid()), grace, sys.executable, "-c", code]


def test_output_and_exit_codes_come_through() -> None:
    ends = {"raise SystemExit(7)": 7, "import os; os.kill(os.getpid(), 9)": 128 + 9}
    for code, status in ends.items():
        command = _supervised(f"import sys; print('1%\\r2%', file=sys.stderr); print('end', flush=True); {code}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (status, "end\n", "1%\n2%\n")


@pytest.mark.integration
def test_command_and_its_children_end_with_the_parent_even_if_they_ignore_sigterm(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(_SLEEPER)
    command = [sys.executable, supervisor.__file__, "0.3", sys.executable, "sleeper.py", "parent"]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, *command], cwd=tmp_path)
    pids = _ids(tmp_path / "pid-1.txt", tmp_path / "pid-2.txt")
    supervising = psutil.Process(pids[1]).ppid()
    assert os.getpgid(pids[0]) == supervising
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: all(_gone(pid) for pid in (*pids, supervising)), 60)


@pytest.mark.integration
@pytest.mark.parametrize("then", ["time.sleep(120)", "sys.exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_processes_in_other_sessions_end_with_their_command(tmp_path: Path, then: str) -> None:
    supervising = subprocess.Popen(_supervised(_LAUNCHER.format(then=then)), cwd=tmp_path)
    (rank,) = _ids(tmp_path / "rank.txt")
    if "sleep" in then:
        supervising.terminate()
    supervising.wait(timeout=60)
    assert _gone(rank)


def test_a_stopped_command_may_save_its_state(tmp_path: Path) -> None:
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_WORK!r}])"
    supervising = subprocess.Popen(_supervised(launcher, "60"), cwd=tmp_path)
    wait_until((tmp_path / "ready.txt").exists, 60)
    supervising.terminate()
    assert supervising.wait(timeout=60) != 0
    assert (tmp_path / "saved.txt").exists()


def _failing(times: float, error: type[Exception] = OSError) -> tuple[list[int], Callable[[str], str]]:
    calls: list[int] = []

    def call(answer: str) -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error(f"failure {len(calls)}")
        return answer

    return calls, call


def _is_os_error(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_a_call_is_repeated_until_it_succeeds_or_the_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    calls, call = _failing(3)
    repeat = retrying(60, _is_os_error, lambda error: f"away ({error})", first_s=0.001, longest_s=0.01)
    assert repeat(call, "answer") == "answer"
    assert len(calls) == 4
    assert caplog.messages == ["away (failure 1)"]
    calls, call = _failing(3, ValueError)
    with pytest.raises(ValueError, match="failure 1"):
        retrying(60, _is_os_error)(call, "answer")
    assert len(calls) == 1
    calls, call = _failing(math.inf)
    with pytest.raises(OSError, match=r"failure 1$"):
        retrying(0, _is_os_error)(call, "answer")
    assert len(calls) == 1
    with pytest.raises(OSError, match="failure"):
        retrying(0.1, _is_os_error, first_s=0.01)(call, "answer")
    assert len(calls) > 2
    stopped = threading.Event()
    threading.Timer(0.1, stopped.set).start()
    with pytest.raises(OSError, match="failure"):
        retrying(math.inf, _is_os_error, first_s=3600, longest_s=3600, stopped=stopped)(call, "answer")
