"""argparse, with complaints of one line that name the nearest flag."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from api.text import nearest, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROGRAM: Final = "gpu-control-plane"
HELP: Final = ("-h", "--help")


class CommandLineError(Exception):
    """The command line cannot be used; the text is one line."""


@final
class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    def __init__(
        self, command: str, description: str, *, epilog: str = "", program: str = PROGRAM
    ) -> None:
        self._flags: list[str] = []
        super().__init__(
            prog=f"{program} {command}",
            description=description,
            epilog=epilog or None,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:  # noqa: ANN401  # argparse's
        """Add an argument, and remember its flags."""
        action = super().add_argument(*names, **options)
        self._flags += action.option_strings
        return action

    def error(self, message: str) -> NoReturn:
        """Raise instead of the usage on 65 lines.

        Raises:
            CommandLineError: always.
        """
        raise CommandLineError(f"{message}; `{self.prog} --help` describes the command")

    def parse_flags(self, arguments: "Sequence[str]") -> argparse.Namespace:
        """Return what all arguments say.

        Raises:
            CommandLineError: they cannot be used.
        """
        for argument in arguments:
            # Before argparse, which would rather report what is missing because of it.
            if argument.startswith("--") and argument != "--":
                self.check_flag(argument.partition("=")[0])
        return self.parse_args(arguments)

    def check_flag(self, flag: str) -> None:
        """Refuse a flag that the command does not have.

        Raises:
            CommandLineError: it has none of this name.
        """
        if flag not in self._flags:
            raise no_such("flag", flag, self._flags, listed_by=f"{self.prog} --help")


def no_such(kind: str, word: str, names: "Iterable[str]", *, listed_by: str) -> CommandLineError:
    """Return the complaint about an unknown word, with the nearest known one or the way to all of them."""
    meant = nearest(word, names)
    hint = f"did you mean {meant}?" if meant else f"`{listed_by}` lists them"
    return CommandLineError(f"no such {kind} {word}; {hint}")


def print_error(error: Exception | str) -> None:
    print(printable_lines(f"{PROGRAM}: {error}"), file=sys.stderr)  # noqa: T201  # the command line
