"""Types and sections that settings share: the base of every section, names, quantities, pods' resources and node affinity."""

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from api.kinds.nvidia.operator_blocks import ROLLING_LIMIT
from api.quantity import canonical_quantity
from certs.bundle import Requirements

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]


def _checked_dns_name(text: str) -> str:
    return Requirements(dns_names=(text.lower(),)).dns_names[0]


def _checked_ip_address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _checked_rolling_limit(value: object) -> int | str:
    text = str(value)
    if re.fullmatch(ROLLING_LIMIT, text, re.ASCII) is None:
        raise ValueError(f"{value!r} is neither a number above 0 nor a percentage from 1% to 100%")
    return text if text.endswith("%") else int(text)


DnsName = Annotated[str, AfterValidator(_checked_dns_name)]
IpAddress = Annotated[str, AfterValidator(_checked_ip_address)]
QuantityText = Annotated[str, AfterValidator(canonical_quantity)]
ObjectName = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
RollingLimit = Annotated[
    int | str,
    PlainValidator(_checked_rolling_limit),
    WithJsonSchema(
        {"type": ["integer", "string"], "minimum": 1, "pattern": f"^({ROLLING_LIMIT})$"}
    ),
]
HostPath = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$", max_length=255)]
"""An absolute path, without `..` and without a slash at its end."""


class Section(BaseModel):
    """A section of settings: unknown names are refused, docstrings are descriptions."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class NodeRequirementSettings(Section):
    """An expression on the labels of a node, as in a node affinity."""

    key: str
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """Comparison of the label's value."""
    values: tuple[str, ...] = ()
    """Values to compare with."""

    @model_validator(mode="after")
    def _as_many_values_as_the_operator_takes(self) -> Self:
        count = len(self.values)
        is_right = {
            "In": count > 0,
            "NotIn": count > 0,
            "Exists": count == 0,
            "DoesNotExist": count == 0,
            "Gt": count == 1,
            "Lt": count == 1,
        }
        if not is_right[self.operator]:
            raise ValueError(f"operator {self.operator} does not take {count} values")
        return self


class ResourcesSettings(Section):
    """Resources of a container."""

    requests: dict[str, QuantityText] = {"cpu": "10m", "memory": "96Mi"}
    """Requests by resource."""
    limits: dict[str, QuantityText] = {"memory": "256Mi"}
    """Limits by resource."""
