"""Kubernetes' own schemas of its objects, each read once.

`kubernetes_validate.validate` reads the definitions of a version, two megabytes, for every object again.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

from kubernetes_validate import utils

SchemaError = utils.jsonschema.ValidationError


def check_object(body: Mapping[str, Any], version: str) -> None:
    """Check an object strictly, an unknown field included, against the schema of a version such as `1.30`.

    Raises:
        SchemaError: it is not valid.
    """
    _validator(body["kind"], body["apiVersion"], version).validate(body)


@functools.cache
def _validator(kind: str, api_version: str, version: str) -> Any:
    # `rbac.authorization.k8s.io/v1` is `rbac-v1` among the files.
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = _content(f"{kind.lower()}-{group}.json", version)
    registry = utils.Resource.from_contents(schema) @ _definitions(version)
    return utils.jsonschema.validators.Draft202012Validator(schema, registry=registry)


@functools.cache
def _definitions(version: str) -> Any:
    return utils.Resource.from_contents(_content("_definitions.json", version)) @ utils.Registry()


def _content(file: str, version: str) -> Any:
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    return utils.schema_contents(f"{folder}/{file}", version)
