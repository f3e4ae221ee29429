"""The pool of `render nodepool`: from a file or standard input, and what its backend needs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.field_errors import UNDECODABLE
from api.kinds.autoscaling import ScalingBackend
from api.kinds.gpupool import GPUPool
from cli.command_parser import PROGRAM, CommandLineError
from cli.simulation.errors import BadInputError
from cli.simulation.object_files import read_objects
from manifests.scaling.node_pool import NodeClassRef, build_node_pools
from manifests.scaling.priority_class import build_balloon_priority_class

if TYPE_CHECKING:
    import argparse

DEFAULT_NODE_CLASS: Final = "karpenter.k8s.aws/EC2NodeClass/default"
_STANDARD_INPUT: Final = Path("/dev/stdin")
_HOW: Final = f"`kubectl get gpupool NAME -o yaml | {PROGRAM} render nodepool`"


def node_pool_objects(options: "argparse.Namespace") -> list[dict[str, Any]]:
    """Return the objects that the backend of the pool needs beside it.

    Raises:
        CommandLineError: there is no such pool, or it needs none.
    """
    file = options.pool_file
    if file is None and sys.stdin.isatty():
        raise CommandLineError(f"the pool is missing: --pool-file FILE, or {_HOW}")
    pool = _pool_of(file or _STANDARD_INPUT, options.pool)
    scaling = pool.spec.autoscaling
    if scaling is None or scaling.backend is ScalingBackend.NONE:
        raise CommandLineError(
            f"GPUPool {pool.name} gets no nodes: it has no spec.autoscaling, or its backend is none"
        )
    if not scaling.shapes:
        raise CommandLineError(
            f"GPUPool {pool.name} has no spec.autoscaling.shapes: name at least one kind of node"
        )
    if scaling.backend is ScalingBackend.BALLOON:
        return [build_balloon_priority_class()]
    node_class = NodeClassRef(*(options.node_class or DEFAULT_NODE_CLASS).split("/"))
    return build_node_pools(pool, node_class)


def _pool_of(file: Path, name: str | None) -> GPUPool:
    try:
        found = [
            msgspec.convert(item, GPUPool)
            for item in read_objects(file)
            if item["kind"] == "GPUPool"
        ]
    except BadInputError as error:
        raise CommandLineError(str(error)) from error
    except UNDECODABLE as error:
        raise CommandLineError(f"{file}: the GPUPool cannot be decoded: {error}") from error
    named = [entry for entry in found if name is None or entry.name == name]
    if len(named) == 1:
        return named[0]
    there = ", ".join(entry.name for entry in found) or "none"
    raise CommandLineError(
        f"{file} has {len(named)} GPUPools"
        + (f" with the name {name}" if name else "; --pool NAME chooses one")
        + f" (there: {there})"
    )
