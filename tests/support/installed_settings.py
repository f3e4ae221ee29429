"""Settings that the server's Deployment of an installation has."""

import json
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


def installed_settings(objects: Sequence[Json]) -> Json:
    (server,) = (
        item
        for item in objects
        if item["kind"] == "Deployment" and item["metadata"]["name"] == "gpu-control-plane"
    )
    (container,) = server["spec"]["template"]["spec"]["containers"]
    command, flag, text = container["args"]
    assert (command, flag) == ("serve", "--installation")
    # As the kubelet expands an argument without variables.
    settings: Json = json.loads(text.replace("$$", "$"))
    return settings
