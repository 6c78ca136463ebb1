"""The command line in this process, without the start of another one."""

import os
import subprocess
from collections.abc import Sequence

from click.testing import CliRunner

from tests.support.processes.programs import Cli, one_line
from tumira.cli import main


class QuickCli(Cli):
    """What only a process of its own can show is left to the tests that start one."""

    def run(self, *arguments: str | bytes, given: bytes | None = None) -> "subprocess.CompletedProcess[str]":
        unset = {name: None for name in os.environ if name.startswith("TUMIRA_")}
        words = [os.fsdecode(one) for one in arguments]
        done = CliRunner().invoke(main, words, input=given or b"", env={**unset, **self._environment})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)

    def check_refused(self, *expected: tuple[str, Sequence[str | bytes]]) -> None:
        """Run commands that cannot be carried out; each says why in one line with these words."""
        lines = [one_line(self.run(*command)) for _, command in expected]
        assert [
            (words, line) for (words, _), line in zip(expected, lines, strict=True) if words not in line
        ] == []

    def check_misused(self, *expected: tuple[str, Sequence[str]]) -> None:
        """Run commands that are typed wrongly; each ends with a line with these words."""
        lines = self.misused(*(command for _, command in expected))
        assert [
            (words, line) for (words, _), line in zip(expected, lines, strict=True) if words not in line
        ] == []
