"""CEL expressions that several policies use, and policies that restrict accounts of ours."""

from typing import TYPE_CHECKING, Any, Final

from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT_BY_API_SERVER: Final = ("managedFields", "resourceVersion", "generation")
"""Fields of metadata that change with every write."""


def cel_list(words: "Sequence[str]") -> str:
    """Return a CEL list of the words, none of which contains a quote or a backslash."""
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def unchanged_except(path: str, keys: "Sequence[str]", *, beside: str = "") -> str:
    """Return an expression: an update leaves all entries of a map unchanged except the keys.

    `path` begins below the object; its last step may be optional (`metadata.?labels`). `beside` is
    an expression under which a further key `k` may differ.
    """
    # As dyn: the API server's type check knows no key of a map by a variable.
    new, old = (
        f"dyn({item}).{path}{'.orValue({})' if '?' in path else ''}"
        for item in ("object", "oldObject")
    )
    allowed = [f"k in {cel_list(keys)}"] if keys else []
    allowed += [beside] if beside else []
    return f"[{new}, {old}].all(m, m.all(k, {' || '.join([*allowed, f'{new}[?k] == {old}[?k]'])}))"


def build_account_policy(
    name: str,
    usernames: "Sequence[str]",
    *,
    matched: dict[str, Any],
    validations: list[dict[str, str]],
    variables: "Sequence[dict[str, str]]" = (),
) -> list[dict[str, Any]]:
    """Return a policy that restricts these accounts, and its binding.

    Its condition is the account's name, which cannot fail, so that it affects no other user; it fails closed.
    """
    return build_policy(
        name,
        matched=matched,
        conditions={"is-the-account": f"request.userInfo.username in {cel_list(usernames)}"},
        validations=validations,
        variables={item["name"]: item["expression"] for item in variables},
    )


def build_policy(
    name: str,
    *,
    matched: dict[str, Any],
    conditions: "Mapping[str, str]",
    validations: list[dict[str, str]],
    variables: "Mapping[str, str]",
) -> list[dict[str, Any]]:
    """Return a policy that fails closed, and its binding; conditions and variables are expressions by name."""
    metadata = {"name": name, "labels": dict(constants.LABELS)}
    further: dict[str, Any] = {"variables": _named(variables)} if variables else {}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", **matched},
            "matchConditions": _named(conditions),
            **further,
            "validations": validations,
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _named(expressions: "Mapping[str, str]") -> list[dict[str, str]]:
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def resource_rule(
    group: str,
    version: str,
    *resources: str,
    operations: "Sequence[str]" = ("CREATE", "UPDATE", "DELETE"),
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "*",
    }
