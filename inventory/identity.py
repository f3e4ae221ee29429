"""Identity of a device: its node and its PCI address, in one canonical spelling.

`inventoryID` is `<node>-<pci address>`; the GPUDevice's name is the same made a DNS name. The address is the
last part of both, with a fixed form, so that no two devices of two nodes have one name. A name that would be
too long ends in a digest of the whole instead.
"""

import hashlib
import re
from typing import Final

from api.names import DeviceName, NodeName

MAX_NAME_LENGTH: Final = 253
"""Length of an object's name."""
_DIGEST_LENGTH: Final = 16
_NODE_DIGEST_LENGTH: Final = 32
_ADDRESS: Final = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.ASCII | re.IGNORECASE
)
_DOMAIN_LENGTH: Final = 4


def canonical_address(text: str) -> str | None:
    """Return the PCI address as `0000:17:00.0`, or None for any other text.

    NVML writes eight digits of the domain, lspci leaves domain 0 out. Digits beyond four stay where they
    are not zero: a domain of Intel's VMD is 10000.
    """
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    domain = (domain or "").lstrip("0").rjust(_DOMAIN_LENGTH, "0")
    return f"{domain}:{bus}:{device}.{function}".lower()


def inventory_id(node: NodeName, address: str) -> str:
    """Return the `inventoryID` that pool selectors match; `address` is canonical."""
    return f"{node}-{address}"


def device_name(node: NodeName, address: str) -> DeviceName:
    """Return the name of the device's GPUDevice: at most 253 characters, distinct, a DNS name."""
    name = inventory_id(node, address).replace(":", "-")
    if len(name) <= MAX_NAME_LENGTH:
        return DeviceName(name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    kept = name[: MAX_NAME_LENGTH - 1 - _DIGEST_LENGTH].rstrip("-.")
    return DeviceName(f"{kept}-{digest}")


def node_digest(node: NodeName) -> str:
    """Return the value of the label that selects a node's GPUDevices."""
    return hashlib.sha256(node.encode()).hexdigest()[:_NODE_DIGEST_LENGTH]
