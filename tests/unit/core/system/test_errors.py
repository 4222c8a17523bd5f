"""`run_command` turns errors that a user can mend into one line."""

from __future__ import annotations

import errno
import os
from functools import partial
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.cli.tables import print_rows, say
from components.core.system.errors import InputError, run_command

SCHEMES = ("http", "https", "postgresql+psycopg", "qdrant", "s3", "mysql")
PASSWORDS = st.text("abcXYZ789/@ ?#:%&=+'\"(),;!$~\\[]", min_size=3, max_size=20).map("pw{}PW".format)


def test_errors_of_users_are_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch==2", 'onnx-script>1; python_version > "3" and extra == "export"', 'torch==2; extra == "dev"']
    monkeypatch.setattr("components.core.system.errors.requires", lambda _: lines)

    def fail(error: Exception) -> None:
        raise error

    written = "error: x cannot be written"
    for error, line in (
        (InputError("params.yaml: key 'a':\n  wrong"), "error: params.yaml: key 'a': wrong"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"), f"{written} (No space left on device)"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "x"), f"{written} (Read-only file system)"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "x"), f"{written} (Permission deni"),
        (MemoryError(), "error: out of memory: free memory, or lower batch sizes"),
        (PackageNotFoundError("onnx-script"), "error: package onnx-script is missing: install cliptune[export]"),
        (ModuleNotFoundError("x", name="onnx_script.sub"), "error: package onnx_script.sub is missing: install clip"),
    ):
        with pytest.raises(SystemExit, match="1"):
            run_command(partial(fail, error))
        output = capsys.readouterr().err
        assert output.startswith(line)
        assert output.count("\n") == 1
    with pytest.raises(FileNotFoundError):
        run_command(partial(fail, FileNotFoundError(errno.ENOENT, "missing", "x")))
    with pytest.raises(ModuleNotFoundError):
        run_command(partial(fail, ModuleNotFoundError("a module of this project is missing", name="components.x")))


@settings(max_examples=200)
@given(scheme=st.sampled_from(SCHEMES), password=PASSWORDS, sep=st.sampled_from("?&"), data=st.data())
def test_no_message_has_a_password(scheme: str, password: str, sep: str, data: st.DataObject) -> None:
    """In an address as a user, password or key, with any sign in it, and in what a library says of the address."""
    name = data.draw(
        st.sampled_from(["password", "passwd", "pwd", "sig", "api_key", "X-Amz-Signature", "access_token"])
    )
    login = data.draw(st.sampled_from([f"me:{password}@", f"{password.replace(' ', '').replace(':', '')}@", ""]))
    query = "" if login else f"{sep}{name}={password.replace('&', '').replace(' ', '')}"
    address = f"{scheme}://{login}127.0.0.1:1/shop{query}"
    told = str(InputError(f"{address} does not answer (Invalid url: {address}): ask the owner of shop@champion"))
    assert "pw" not in told.replace("pwd=", "").replace("passwd=", "")
    assert "127.0.0.1:1/shop" in told
    assert told.endswith("ask the owner of shop@champion")


def test_no_sign_that_a_terminal_obeys_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise InputError(
            "a\x1b]0;owned\x07\x1b[2J\u202eb.jpg, \u0645\u06cc\u200c\u062e, \U0001f468\u200d\U0001f469: left out"
        )

    with pytest.raises(SystemExit):
        run_command(fail)
    shown = capsys.readouterr().err
    assert shown.startswith(
        "error: a\\x1b]0;owned\\x07\\x1b[2J\\u202eb.jpg, \u0645\u06cc\u200c\u062e, \U0001f468\u200d"
    )
    print_rows(("file", "state"), [("a\x1b[2J[red]b", ("ok", "green"))], title="\x1b[1m")
    say("first \x1b]0;owned\x07\nsecond \u202e")
    shown = capsys.readouterr().out
    assert "a\\x1b[2J[red]b" in shown
    assert "\x1b" not in shown
    assert shown.endswith("first \\x1b]0;owned\\x07\nsecond \\u202e\n")
