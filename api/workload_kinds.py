"""Kinds whose pod templates name pools, and the accounts of the controllers that make pods of them.

A path leads through an object to a template; its parts are names of fields, and `*` for every member of a list or a
map. `docs/access.md` says what the kinds are for.
"""

from dataclasses import dataclass
from typing import Final

TEMPLATE_PATH_PATTERN: Final = r"^spec(\.[A-Za-z]\w*(\.\*)?)+$"
"""A `*` follows a name: no list of lists has templates."""
GROUP_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$"
KIND_PATTERN: Final = r"^[A-Z][A-Za-z0-9]*$"
RESOURCE_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """A kind with one or several pod templates."""

    group: str
    kind: str
    resource: str
    """Plural name in the API."""
    templates: tuple[str, ...] = ("spec.template",)
    is_annotated: bool = False
    """Its controller copies annotations of the object, not of the template, to pods."""
    is_fixed: bool = False
    """The API server refuses other annotations of the template once the object is stored."""

    @property
    def key(self) -> tuple[str, str]:
        """Return group and kind, as an owner reference names them."""
        return self.group, self.kind

    def __str__(self) -> str:
        return self.kind


BUILT_IN_KINDS: Final = (
    *(
        WorkloadKind(group="apps", kind=kind, resource=f"{kind.lower()}s")
        for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
    ),
    WorkloadKind(group="batch", kind="Job", resource="jobs", is_fixed=True),
    WorkloadKind(
        group="batch",
        kind="CronJob",
        resource="cronjobs",
        templates=("spec.jobTemplate.spec.template",),
    ),
)
"""Kubernetes' own, without the ReplicationController: its pods inherit nothing."""

MADE_OF: Final[dict[tuple[str, str], tuple[str, str] | None]] = {
    **{kind.key: None for kind in BUILT_IN_KINDS},
    ("apps", "Deployment"): ("apps", "ReplicaSet"),
    ("batch", "CronJob"): ("batch", "Job"),
}
"""Kind of what Kubernetes' own controllers make of another, whose name it begins with; None where they make pods."""

BUILT_IN_CONTROLLERS: Final = (
    "system:kube-controller-manager",  # without --use-service-account-credentials
    *(
        f"system:serviceaccount:kube-system:{name}-controller"
        for name in ("cronjob", "daemon-set", "deployment", "job", "replicaset", "statefulset")
    ),
)
"""User names of the controllers of these kinds."""
