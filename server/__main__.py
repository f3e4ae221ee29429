"""`gpu-control-plane`, and `python -m server`."""

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["agent"]:
        from server.agent_command import run_alone  # noqa: PLC0415

        sys.exit(run_alone(arguments[1:]))
    from server.cli import run  # noqa: PLC0415

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
