"""Flags of `render`: which target has which, and what the API server would refuse of them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from api.names import pool_name_fault
from cli.command_parser import CommandLineError
from manifests.node.device_plugin import names_registry

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection

    from cli.command_parser import CommandParser

_NAMESPACED: Final = (
    "rbac",
    "policy",
    "webhooks",
    "scheduler-config",
    "operands",
    "alerts",
    "dashboards",
)
TARGETS_OF_FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "values": ("all",),
    "kube_version": ("all",),
    "settings": ("crds", *_NAMESPACED),
    "namespace": ("all", *_NAMESPACED),
    "url": ("webhooks", "scheduler-config"),
    "ca_file": ("webhooks", "scheduler-config"),
    "client_cert": ("scheduler-config",),
    "client_key": ("scheduler-config",),
    "kubeconfig": ("scheduler-config",),
    "resource": ("scheduler-config",),
    "user": ("policy",),
    "board": ("dashboards",),
    "pool": ("nodepool",),
    "pool_file": ("nodepool",),
    "node_class": ("nodepool",),
    "name": ("clusterpolicy",),
    "registry": ("clusterpolicy",),
    "driver_version": ("clusterpolicy",),
    "no_driver": ("clusterpolicy",),
    "no_toolkit": ("clusterpolicy",),
}
"""Option -> the targets that it changes; with others it would have no effect, and is refused."""

_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_SUBDOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_RESOURCE: Final = re.compile(
    rf"(?=[^/]{{1,253}}/){_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
_VERSION: Final = re.compile(r"v1\.\d+\.\d+([-+][\w.+-]+)?")
_NODE_CLASS: Final = re.compile(
    rf"{_LABEL}(\.{_LABEL})*/[A-Z][A-Za-z0-9]{{0,62}}/{_LABEL}(\.{_LABEL})*"
)
_REGISTRY: Final = re.compile(r"[A-Za-z0-9][\w.-]*(:\d{1,5})?(/[a-z0-9][a-z0-9._-]*)*")
_DRIVER_VERSION: Final = re.compile(r"\d[\w.-]{0,99}|sha256:[0-9a-f]{64}", re.ASCII)
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


def add_render_flags(parser: "CommandParser") -> None:
    """Add the flags of all targets."""
    _add(parser, "values", "values as the chart takes them (charts/gpu-control-plane/values.yaml)")
    _add(
        parser,
        "kube_version",
        "version of the cluster, which kube-scheduler's image has, e.g. v1.34.2",
        metavar="VERSION",
    )
    _add(parser, "settings", "the server's settings: names, images of its DaemonSets, and kinds")
    _add(parser, "namespace", "namespace of the server (gpu-control-plane)", metavar="NAME")
    _add(
        parser,
        "url",
        "webhooks and extender at this base URL instead of the Service",
        metavar="URL",
    )
    _add(parser, "ca_file", "CA of the server, put in as caBundle or named as caFile")
    _add(parser, "client_cert", "client certificate of kube-scheduler")
    _add(parser, "client_key", "its key")
    _add(parser, "kubeconfig", "kubeconfig of kube-scheduler")
    _add(
        parser,
        "resource",
        "print the extender for the cluster's own scheduler instead, for the resource of each pool, e.g."
        " gpu.deckhouse.io/train; may be repeated",
        metavar="RESOURCE",
    )
    _add(
        parser,
        "user",
        "user that may write our annotations (the server's service account); may be repeated",
        metavar="NAME",
    )
    _add(
        parser,
        "board",
        "print the JSON of one dashboard instead, as Grafana imports it, e.g. gpu-node",
        metavar="NAME",
    )
    _add(parser, "pool", "name of the GPUPool; needed where there are several", metavar="NAME")
    _add(parser, "pool_file", "the GPUPool, as `kubectl get -o yaml` shows it (standard input)")
    _add(
        parser,
        "node_class",
        "the provider's object that makes machines, as group/Kind/name (karpenter.k8s.aws/EC2NodeClass/default)",
        metavar="CLASS",
    )
    _add(parser, "name", "name of the object (cluster-policy)", metavar="NAME")
    _add(parser, "registry", "where copies of the images are (nvcr.io)", metavar="REGISTRY")
    _add(
        parser,
        "driver_version",
        "version of the driver's image, without the nodes' system, e.g. 595.91.07",
        metavar="VERSION",
    )
    _add(parser, "no_driver", "the nodes have a driver already", metavar="")
    _add(parser, "no_toolkit", "the nodes have the container toolkit already", metavar="")


def _add(parser: "CommandParser", name: str, text: str, *, metavar: str = "FILE") -> None:
    help_ = f"{', '.join(TARGETS_OF_FLAGS[name])}: {text}"
    flag = _flag(name)
    if name in {"resource", "user"}:
        parser.add_argument(flag, action="append", metavar=metavar, help=help_)
    elif not metavar:
        parser.add_argument(flag, action="store_const", const=True, help=help_)
    else:
        kind = Path if metavar == "FILE" else str
        parser.add_argument(flag, type=kind, metavar=metavar, help=help_)


def check_render_options(target: str, options: "argparse.Namespace") -> None:
    """Refuse flags of other targets, and values that make objects which no API server accepts.

    Raises:
        CommandLineError: names the flag and what it needs.
    """
    for name, targets in TARGETS_OF_FLAGS.items():
        given = getattr(options, name)
        if given is None:
            continue
        if target not in targets:
            raise CommandLineError(
                f"{_flag(name)} is for {_alternatives_text(targets)}, not for {target}"
            )
        for value in given if isinstance(given, list) else [given]:
            if name in _FAULTS and (fault := _FAULTS[name](str(value))):
                raise CommandLineError(f"{_flag(name)} {str(value)!r}: {fault}")
    if options.driver_version and options.no_driver:
        raise CommandLineError(
            "--driver-version has no effect beside --no-driver: give one of them"
        )
    if target == "webhooks" and options.ca_file and (fault := _ca_fault(options.ca_file)):
        # The file's content becomes caBundle; other targets name the file only.
        raise CommandLineError(f"--ca-file {options.ca_file}: {fault}")


def url_fault(url: str) -> str | None:
    """Return why the API server would not call webhooks at the URL, or None."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme != "https":
        return "the URL must begin with https://"
    if not host or port == 0 or re.search(r"\s", url):
        return "the URL needs a host, as in https://10.0.0.1:8443"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return "the URL may have neither query nor fragment"
    return "the URL may have no user" if "@" in parts.netloc else None


def _namespace_fault(name: str) -> str | None:
    if _NAMESPACE.fullmatch(name):
        return None
    return "a namespace has up to 63 lower-case letters, digits and '-', with a letter or digit at both ends"


def _version_fault(version: str) -> str | None:
    if _VERSION.fullmatch(version):
        return None
    return "a version is as `kubectl version` shows it: v1.34.2, perhaps with a vendor's suffix"


def _resource_fault(name: str) -> str | None:
    return (
        None
        if _RESOURCE.fullmatch(name)
        else "a resource is domain/name, as gpu.deckhouse.io/train"
    )


def _node_class_fault(text: str) -> str | None:
    if _NODE_CLASS.fullmatch(text):
        return None
    return "a node class is group/Kind/name, as karpenter.k8s.aws/EC2NodeClass/default"


def _object_name_fault(name: str) -> str | None:
    if _SUBDOMAIN.fullmatch(name):
        return None
    return "a name has lower-case letters, digits, '-' and '.', with a letter or digit at both ends"


def _registry_fault(text: str) -> str | None:
    if _REGISTRY.fullmatch(text) and names_registry(f"{text}/"):
        return None
    return "a registry is a host with a port or path if needed, as registry.example.com:5000/copies"


def _driver_version_fault(version: str) -> str | None:
    if _DRIVER_VERSION.fullmatch(version):
        return None
    return "a version is the start of an image's tag, as 595.91.07, or sha256: and a digest"


def _user_fault(name: str) -> str | None:
    """Return why no user has the name, or why the policy cannot hold it in a string of CEL."""
    if not name or name != name.strip() or not name.isprintable() or set(name) & set("'\\"):
        return "a user has a name of printable characters, without quotes and without blanks at its ends"
    account = name.removeprefix(_SERVICE_ACCOUNT)
    if account == name:
        return None
    namespace, _, own = account.partition(":")
    if _NAMESPACE.fullmatch(namespace) and _SUBDOMAIN.fullmatch(own):
        return None
    return f"a service account is {_SERVICE_ACCOUNT}NAMESPACE:NAME"


def _ca_fault(file: Path) -> str | None:
    try:
        content = file.read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if b"PRIVATE KEY" in content:
        return "the file has a private key, which does not belong into a manifest"
    return None if b"-----BEGIN CERTIFICATE-----" in content else "the file has no PEM certificate"


_FAULTS: Final[dict[str, "Callable[[str], str | None]"]] = {
    "namespace": _namespace_fault,
    "kube_version": _version_fault,
    "url": url_fault,
    "resource": _resource_fault,
    "user": _user_fault,
    "pool": pool_name_fault,
    "node_class": _node_class_fault,
    "name": _object_name_fault,
    "registry": _registry_fault,
    "driver_version": _driver_version_fault,
}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _alternatives_text(words: "Collection[str]") -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
