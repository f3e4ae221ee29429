"""`gpu-control-plane`, and `python -m cli`."""

import sys

from cli.main import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
