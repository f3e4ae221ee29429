"""`gpu-control-plane`, and `python -m cli`."""

import sys


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["agent"]:
        from cli.agent import run_alone  # noqa: PLC0415

        sys.exit(run_alone(arguments[1:]))
    from cli.main import run  # noqa: PLC0415

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
