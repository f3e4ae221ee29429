"""`kubectl gpu`, and `python -m kubectl_gpu`."""

import gc
import sys

from kubectl_gpu.command_line import run
from kubectl_gpu.terminal import Terminal


def main() -> None:
    gc.disable()  # a tenth of the time; a run is short, and `--watch` enables it again
    sys.exit(run(sys.argv[1:], Terminal.of_process()))


if __name__ == "__main__":
    main()
