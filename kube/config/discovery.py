"""The choice of the API server and its credentials.

Order: an explicit kubeconfig, $KUBECONFIG, the service account of the pod, ~/.kube/config.
Inside a pod the service account goes before a file that happens to lie in the image.
A pod never imports the library that reads kubeconfigs: it takes 1.8 s of CPU time and 75 MiB.
"""

import os
from typing import TYPE_CHECKING

from kube.config.connection import proxy_for
from kube.config.service_account import is_in_pod, load_service_account

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.clock import Clock
    from kube.config.connection import Connection
    from kube.config.service_account import ServiceAccountFiles

_DEFAULT_KUBECONFIG = "~/.kube/config"


async def load_configuration(
    clock: "Clock",
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: "Mapping[str, str]" = os.environ,
    service_account: "ServiceAccountFiles | None" = None,
) -> "Connection":
    """Return the configuration; its tokens renew themselves as `KubeClient` asks for them.

    Args:
        clock: decides when a token is read again.
        kubeconfig: a path, or several in $KUBECONFIG's form; goes before everything else.
        context: of the kubeconfig; its current one by default.
        environ: the process environment, read for KUBECONFIG and KUBERNETES_SERVICE_HOST.
        service_account: the files of the pod's service account.

    Raises:
        BadConfigurationError: there is none, or it cannot be used.
    """
    paths = kubeconfig or environ.get("KUBECONFIG")
    if not paths and is_in_pod(environ):
        return load_service_account(environ, service_account)
    from kube.config.kubeconfig import load_kubeconfig  # noqa: PLC0415  # see above

    configuration = await load_kubeconfig(paths or _DEFAULT_KUBECONFIG, context, clock)
    if configuration.proxy is None:
        configuration.proxy = proxy_for(configuration.host or "")
    return configuration
