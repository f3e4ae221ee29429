"""Programs of ours, in processes that end with the demo's."""

import asyncio
import os
import sys
from typing import IO


async def start_program(
    module: str,
    *arguments: str,
    stdout: int | None = None,
    stderr: int | IO[bytes] | None = None,
    **variables: str,
) -> asyncio.subprocess.Process:
    """Run `python -m MODULE ARGUMENTS` with variables besides the environment, and without the user's own cluster."""
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.parent_process", str(os.getpid()), module, *arguments),
        stdout=stdout,
        stderr=stderr,
        env=environment | variables,
    )


async def output_of(module: str, *arguments: str, **variables: str) -> str:
    """Return what a program prints.

    Raises:
        OSError: its exit status is not 0.
    """
    pipe = asyncio.subprocess.PIPE
    process = await start_program(module, *arguments, stdout=pipe, stderr=pipe, **variables)
    answer, complaint = await process.communicate()
    if process.returncode != 0:
        raise OSError(f"{module} ended with status {process.returncode}: {complaint.decode()}")
    return answer.decode()
