"""Running the command line as a user does."""

import sys

import pytest

from outspan.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line and check its exit code; a refusal is one line and no traceback."""

    def call(*arguments: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["outspan", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        assert exited.value.code == code, err
        if code:
            assert err.startswith("outspan: ")
            assert err.count("\n") == 1
            assert out == ""
        return err if code else out

    return call
