"""`kubectl gpu version`: of the plugin, and of the kinds and Kubernetes that the cluster has."""

from typing import TYPE_CHECKING, final

import msgspec

from api.meta import Model
from api.names import API_VERSION
from api.text import printable
from api.version import REVISION, VERSION
from kubectl_gpu.answer_forms import Document, structured
from kubectl_gpu.errors import UnreadableError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.verb_flags import open_source, parse_verb, verb_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_gpu.terminal import Terminal


class _KubernetesVersion(Model, frozen=True):
    git_version: str = ""


@final
class PluginVersions(Document, frozen=True, kw_only=True):
    """Document of the verb `version`."""

    plugin: str
    revision: str
    kinds: str
    """Group and version of the kinds that the plugin reads."""
    kubernetes: str | None = None
    """Version of the API server; absent where it cannot be reached."""


def run_version(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Show versions; the plugin's own where no API server can be reached."""
    given = parse_verb(verb_parser("version", "Show versions."), arguments)
    problem = ""
    kubernetes: str | None = None
    with open_source(given) as cluster:
        try:
            kubernetes = msgspec.json.decode(
                cluster.get("/version"), type=_KubernetesVersion
            ).git_version
        except UnreadableError as error:
            problem = str(error)
    found = PluginVersions(
        plugin=VERSION, revision=REVISION, kinds=API_VERSION, kubernetes=kubernetes
    )
    text = structured(found, [VERSION], form=given.output)
    if text is None:
        text = (
            f"kubectl gpu  {found.plugin} ({found.revision}), reads {found.kinds}\n"
            f"Kubernetes   {printable(found.kubernetes or f'unknown: {problem}')}\n"
        )
    terminal.write(text)
    return ANSWERED
