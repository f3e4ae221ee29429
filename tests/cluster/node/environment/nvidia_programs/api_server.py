"""The API server, asked as the account of the pod."""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer; None where there is no such object."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ["KUBERNETES_SERVICE_PORT"]
    token = (_ACCOUNT / "token").read_text(encoding="ascii")
    request = urllib.request.Request(
        f"https://{host}:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method=method,
    )
    trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, context=trusted, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        print(f"{method} {path}: {error.code} {error.read().decode()}", file=sys.stderr)
        raise
