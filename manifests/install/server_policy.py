"""ValidatingAdmissionPolicies that restrict the server to the writes that it needs.

RBAC knows resources and names, not fields: a right to patch pods is a right to replace their
images, and a right to create Secrets is a right to create a token of any service account of the
namespace. The API server therefore compares the writes of the server's service account with those
that the server needs. Its writes of pods are in the policy that covers all pods anyway
(`manifests.install.annotation_policy`).

A failing rule stops only the server, and it fails closed, because the policy guards against a compromised server. No
webhook is called for webhook configurations, and no policy applies to policies: RBAC gives the server no right on those.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from api.names import (
    CAPACITY_GATE,
    COMPONENT_LABEL,
    ENGINE_ANNOTATIONS,
    FENCED_LABEL,
    GROUP,
    POOL_LABEL,
    SCALE_SIGNAL,
    TRUST_HASH_ANNOTATION,
    UNITS_CONDITION,
    VERSION,
)
from api.well_known_labels import REGION_LABEL, ZONE_LABEL
from manifests import constants
from manifests.install import node_software_policy as software
from manifests.install.node_rules import node_rules
from manifests.install.policy_expressions import (
    KEPT_BY_API_SERVER,
    build_account_policy,
    cel_list,
    resource_rule,
    unchanged_except,
)
from manifests.install.scaling_policy import (
    IS_OWN_SIGNAL,
    LEAVES_POD_SPEC,
    node_claim_rule,
    signal_rules,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_RBAC: Final = "rbac.authorization.k8s.io"
_MONITORS: Final = ("prometheusrules", "servicemonitors")
_WEBHOOK_CONFIGURATIONS: Final = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
)
_SECRET_TYPES: Final = ("kubernetes.io/tls", "Opaque")
"""Not `kubernetes.io/service-account-token`, which creates a token of the account that it names."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObjects:
    """What the server's own objects depend on."""

    namespace: str = constants.DEFAULT_NAMESPACE
    images: tuple[str, ...] | None = None
    """Images of its DaemonSets; None allows any."""
    issues_certificates: bool = True
    """Whether it makes certificates and writes caBundle: `tls.source: SelfSigned`."""
    runs_node_software: bool = False
    """Whether it serves ClusterPolicies and NVIDIADrivers, and so has rights and writes of its own for them."""

    @property
    def username(self) -> str:
        return constants.service_account_username(self.namespace)


_OTHER_CONDITIONS: Final = (
    f"dyn({{0}}).status.?conditions.orValue([]).filter(c, c.type != '{UNITS_CONDITION}')"
)
_LEAVES_OTHER_CONDITIONS: Final = (
    f"{_OTHER_CONDITIONS.format('object')} == {_OTHER_CONDITIONS.format('oldObject')}"
)


_POOL_RULE: Final = {
    "expression": (
        f"request.resource.resource != 'gpupools' || {unchanged_except('metadata', ('finalizers', *KEPT_BY_API_SERVER))}"
        f" && {unchanged_except('?spec', ())}"
    ),
    "message": "of a GPUPool the GPU control plane writes finalizers and status, and nothing else",
    "reason": "Forbidden",
}
_NODE_FEATURE_RULE: Final = {
    "expression": "request.resource.resource != 'nodefeatures'",
    "message": (
        "the GPU control plane writes no NodeFeature: it has the right in order to grant it to an operand"
    ),
    "reason": "Forbidden",
}


def own_pod_rules(excluded_namespaces: "Sequence[str]") -> tuple[dict[str, str], ...]:
    """Return the rules for the server's writes of a pod, its status or its Binding."""
    metadata = unchanged_except("metadata", ("annotations", *KEPT_BY_API_SERVER))
    annotations = unchanged_except("metadata.?annotations", ENGINE_ANNOTATIONS)
    conditions = f"k == 'conditions' && ({IS_OWN_SIGNAL} || {_LEAVES_OTHER_CONDITIONS})"
    status = unchanged_except("status", ("nominatedNodeName",), beside=conditions)
    return (
        {
            "expression": (
                "request.kind.kind == 'Binding'"
                f" || request.operation == 'CREATE' && {IS_OWN_SIGNAL}"
                f" || request.operation == 'UPDATE' && {LEAVES_POD_SPEC}"
                f" && {metadata} && {annotations} && {status}"
            ),
            "message": (
                f"of a pod the GPU control plane writes its annotations, the removal of the gate {CAPACITY_GATE},"
                f" the condition {UNITS_CONDITION} and status.nominatedNodeName, and nothing else; it creates none but those with {COMPONENT_LABEL}:"
                f" {SCALE_SIGNAL} in its namespace, of which it writes the conditions"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": (
                "request.kind.kind != 'Binding'"
                f" || !(request.namespace in {cel_list(excluded_namespaces)})"
                " && object.metadata.?annotations.orValue({})"
                f".all(k, k in {cel_list(ENGINE_ANNOTATIONS)})"
                " && object.metadata.?labels.orValue({})"
                # The API server copies region and zone from the node (PodTopologyLabelsAdmission, since 1.35).
                f".all(k, k in {cel_list((FENCED_LABEL, POOL_LABEL, REGION_LABEL, ZONE_LABEL))})"
            ),
            "message": (
                "a Binding of the GPU control plane has its annotations and labels only,"
                f" and is of no pod in {', '.join(excluded_namespaces)}"
            ),
            "reason": "Forbidden",
        },
    )


def build_server_policies(
    own: OwnObjects,
    *,
    excluded_namespaces: "Sequence[str]" = constants.DEFAULT_EXCLUDED_NAMESPACES,
) -> list[dict[str, Any]]:
    """Return the policies for cluster objects and for the server's namespace, and their bindings."""
    with_software = own.runs_node_software
    configurations = resource_rule(
        "admissionregistration.k8s.io", "v1", *_WEBHOOK_CONFIGURATIONS, operations=("UPDATE",)
    )
    in_cluster = {
        "resourceRules": [
            resource_rule("", "v1", "namespaces", "nodes", operations=("UPDATE",)),
            resource_rule("", "v1", "pods/eviction", operations=("CREATE",)),
            resource_rule(_RBAC, "v1", "clusterroles", "clusterrolebindings"),
            resource_rule("karpenter.sh", "v1", "nodeclaims", operations=("DELETE",)),
            resource_rule("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures"),
            resource_rule(GROUP, VERSION, "gpupools", operations=("UPDATE",)),
            *([resource_rule("node.k8s.io", "v1", "runtimeclasses")] if with_software else []),
            *([configurations] if own.issues_certificates else []),
        ]
    }
    in_namespace = {
        # Leases of nodes are renewed all the time: they are left out before anything is evaluated.
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": own.namespace}},
        "resourceRules": [
            resource_rule("", "v1", "configmaps", "secrets", "serviceaccounts", "services"),
            resource_rule("", "v1", "pods", operations=("CREATE", "DELETE")),
            resource_rule("apps", "v1", "daemonsets", "deployments"),
            resource_rule("coordination.k8s.io", "v1", "leases"),
            resource_rule("discovery.k8s.io", "v1", "endpointslices"),
            resource_rule(_RBAC, "v1", "rolebindings", "roles"),
            *([resource_rule("monitoring.coreos.com", "v1", *_MONITORS)] if with_software else []),
        ],
    }
    return [
        *build_account_policy(
            constants.SERVER_POLICY,
            [own.username],
            matched=in_cluster,
            validations=[
                *node_rules(with_software=with_software),
                _namespace_rule(own.namespace),
                # A drain for a driver takes a node's pods of these namespaces, too.
                *([] if with_software else [_eviction_rule(excluded_namespaces)]),
                _binding_of_others_rule(own.namespace),
                _cluster_role_rule(own.namespace, with_software=with_software),
                *([software.runtime_class_rule()] if with_software else []),
                node_claim_rule(),
                _POOL_RULE,
                _NODE_FEATURE_RULE,
                *([_webhook_rule()] if own.issues_certificates else []),
            ],
            variables=software.cluster_variable(own.namespace) if with_software else [],
        ),
        *build_account_policy(
            constants.SERVER_OBJECTS_POLICY,
            [own.username],
            matched=in_namespace,
            validations=[
                *_object_rules(own),
                *signal_rules(software.deletable_pod_condition() if with_software else ""),
            ],
            variables=software.namespace_variable() if with_software else [],
        ),
    ]


def _webhook_rule() -> dict[str, str]:
    """Limit the right on the webhook configurations to caBundle: a webhook of the server's choice would read every object."""
    new, old = (f"dyn({item}).?webhooks.orValue([])" for item in ("object", "oldObject"))
    # Webhooks of a configuration have different names, so that as many that are all found are the same.
    is_same = (
        "[w, v].all(m, m.all(k, k == 'clientConfig' || w[?k] == v[?k]))"
        " && [w.clientConfig, v.clientConfig].all(m, m.all(k, k == 'caBundle' || w.clientConfig[?k] == v.clientConfig[?k]))"
    )
    return {
        "expression": (
            f"!(request.resource.resource in {cel_list(_WEBHOOK_CONFIGURATIONS)})"
            f" || {unchanged_except('metadata', KEPT_BY_API_SERVER)} && {new}.size() == {old}.size()"
            f" && {new}.all(w, {old}.exists(v, {is_same}))"
        ),
        "message": "of its webhook configurations the GPU control plane writes caBundle, and nothing else",
        "reason": "Forbidden",
    }


def _namespace_rule(namespace: str) -> dict[str, str]:
    ours = tuple(constants.POD_SECURITY_LABELS)
    metadata = unchanged_except("metadata", ("labels", *KEPT_BY_API_SERVER))
    labels = unchanged_except("metadata.?labels", ours)
    spec = unchanged_except("?spec", ())
    return {
        "expression": (
            "request.resource.resource != 'namespaces'"
            f" || object.metadata.name == '{namespace}' && {metadata} && {labels} && {spec}"
            f" && {cel_list(ours)}.all(k, object.metadata.?labels[?k].orValue('privileged')"
            " == 'privileged' || object.metadata.?labels[?k] == oldObject.metadata.?labels[?k])"
        ),
        "message": (
            "of Namespaces the GPU control plane writes the pod security labels of its own,"
            " and nothing else"
        ),
        "reason": "Forbidden",
    }


def _binding_of_others_rule(namespace: str) -> dict[str, str]:
    """Leave alone, by name and cure, the binding of an operand that another installation has, or has left."""
    subjects = "dyn(oldObject).?subjects.orValue([])"
    subject = "s.kind + ' ' + s.?namespace.orValue('') + '/' + s.name"
    delete = "kubectl delete clusterrolebinding"
    return {
        "expression": (
            "request.resource.resource != 'clusterrolebindings' || oldObject == null"
            f" || !(oldObject.metadata.name in {cel_list(constants.OPERANDS)})"
            f" || {subjects}.all(s, s.?namespace.orValue('') == '{namespace}')"
        ),
        "messageExpression": (
            f"'it binds ' + {subjects}.map(s, {subject}).join(', ') + ', and not only the account of namespace"
            f" {namespace}: another installation of the GPU control plane has it, or left it. Uninstall"
            f" that one, or run: {delete} ' + oldObject.metadata.name"
        ),
        "reason": "Forbidden",
    }


def _cluster_role_rule(namespace: str, *, with_software: bool) -> dict[str, str]:
    """Restrict roles in the whole cluster to those of operands, and their bindings to our namespace."""
    names = cel_list(constants.OPERANDS)
    exception = f" || {software.OF_NODE_SOFTWARE}" if with_software else ""
    return {
        "expression": (
            f"!(request.resource.resource in ['clusterroles', 'clusterrolebindings']){exception}"
            f" || [object, oldObject].filter(one, one != null).all(one, one.metadata.name in {names}"
            " && (request.resource.resource == 'clusterroles' || dyn(one).roleRef.name == one.metadata.name"
            " && dyn(one).?subjects.orValue([]).all(s, s.kind == 'ServiceAccount'"
            f" && s.?namespace.orValue('') == '{namespace}' && s.name == one.metadata.name)))"
        ),
        "message": (
            "the GPU control plane writes no ClusterRole but those of its operands, and binds each to the operand's"
            " own account"
        ),
        "reason": "Forbidden",
    }


def _deployment_rule() -> dict[str, str]:
    unchanged = (
        unchanged_except("metadata", KEPT_BY_API_SERVER),
        unchanged_except("spec", ("template",)),
        unchanged_except("spec.template", ("metadata",)),
        unchanged_except("spec.template.metadata", ("annotations",)),
        unchanged_except("spec.template.metadata.?annotations", (TRUST_HASH_ANNOTATION,)),
    )
    return {
        "expression": (
            "request.resource.resource != 'deployments'"
            f" || request.operation == 'UPDATE' && {' && '.join(unchanged)}"
        ),
        "message": (
            "of kube-scheduler's Deployment the GPU control plane writes the annotation"
            f" {TRUST_HASH_ANNOTATION} of its pods, and nothing else"
        ),
        "reason": "Forbidden",
    }


def _eviction_rule(excluded_namespaces: "Sequence[str]") -> dict[str, str]:
    return {
        "expression": (
            "request.resource.resource != 'pods'"
            f" || !(request.namespace in {cel_list(excluded_namespaces)})"
        ),
        "message": f"the GPU control plane evicts no pod of {', '.join(excluded_namespaces)}",
        "reason": "Forbidden",
    }


def _object_rules(own: OwnObjects) -> list[dict[str, str]]:
    ours = (
        constants.SERVING_SECRET,
        constants.SCHEDULER_SECRET,
        constants.RESERVATION_KEY_SECRET,
        constants.CACHE_KEY_SECRET,
    )
    daemon_sets = (
        constants.NODE_AGENT,
        constants.NODE_DETECTOR,
        *constants.OPERANDS,
        *constants.FORMER_OPERANDS,
    )
    with_software = own.runs_node_software
    by_operand = (
        *("roles", "rolebindings", "serviceaccounts", "services"),
        *(_MONITORS if with_software else ()),
    )
    named = (
        f"request.resource.resource == 'secrets' ? one.metadata.name in {cel_list(ours)}"
        " : request.resource.resource == 'deployments'"
        f" ? one.metadata.name == '{constants.SCHEDULER_DEPLOYMENT}'"
        " : request.resource.resource == 'endpointslices'"
        f" ? one.metadata.name == '{constants.SERVICE_NAME}'"
        " && one.metadata.?labels[?'kubernetes.io/service-name'].orValue('')"
        f" == '{constants.SERVICE_NAME}'"
        " : request.resource.resource == 'leases'"
        f" ? one.metadata.name == '{constants.LEASE_NAME}'"
        f" : request.resource.resource in {cel_list(by_operand)}"
        f" ? one.metadata.name in {cel_list(constants.OPERAND_OBJECTS)}"
        " : request.resource.resource == 'pods' ? true"  # `signal_rules`
        f" : one.metadata.name in {cel_list(daemon_sets)}"
        f" || one.metadata.name.startsWith('{constants.DEVICE_PLUGIN}-')"
        f" || one.metadata.name.startsWith('{constants.MIG_CONFIG}-')"
    )
    template = "dyn(object).spec.template.spec"
    accounts = (
        constants.DEVICE_PLUGIN,
        constants.NODE_AGENT,
        constants.NODE_DETECTOR,
        *constants.OPERANDS,
    )
    is_daemon_set = "object != null && request.resource.resource == 'daemonsets'"
    account_exception = f" || {software.is_of_software_account(template)}" if with_software else ""
    rules = [
        {
            "expression": (
                f"{_software_prefix(with_software)}[object, oldObject].filter(one, one != null).all(one, {named})"
            ),
            "message": "the GPU control plane writes objects of its own names only",
            "reason": "Forbidden",
        },
        {
            "expression": (
                "object == null || request.resource.resource != 'secrets'"
                f" || dyn(object).?type.orValue('') in {cel_list(_SECRET_TYPES)}"
            ),
            "message": f"a Secret of the GPU control plane is of type {' or '.join(_SECRET_TYPES)}",
            "reason": "Forbidden",
        },
        {
            "expression": (
                f"!({is_daemon_set}){account_exception}"
                f" || {template}.?serviceAccountName.orValue('') in {cel_list(accounts)}"
                f" || {template}.?serviceAccountName.orValue('') == ''"
                f" && !{template}.?automountServiceAccountToken.orValue(true)"
            ),
            "message": (
                "pods of the GPU control plane's DaemonSets run as accounts of its agents and operands,"
                " or without a token"
            ),
            "reason": "Forbidden",
        },
    ]
    rules.append(_deployment_rule())
    if own.images is not None:
        images = cel_list(own.images)
        containers = (
            f"({template}.containers + {template}.?initContainers.orValue([]))"
            f".all(c, c.?image.orValue('') in {images})"
            f" && {template}.?volumes.orValue([]).all(v, !v.?image.hasValue())"
        )
        rules.append(
            {
                "expression": (
                    f"!({is_daemon_set}) || {_software_prefix(with_software)}{containers}"
                ),
                "messageExpression": (
                    "'containers in DaemonSets of the GPU control plane run '"
                    + (f" + {images}.join(' or ')" if own.images else " + 'nothing'")
                    + " + ': render the policy again if a setting names another image'"
                ),
                "reason": "Forbidden",
            }
        )
    return rules


def _software_prefix(with_software: bool) -> str:  # noqa: FBT001  # a setting
    """Return the begin of an expression that holds for objects of node software."""
    return f"{software.OF_NODE_SOFTWARE} || " if with_software else ""
