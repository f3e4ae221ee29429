"""Settings of workloads: kinds whose pod templates name pools, and who makes pods of them (docs/access.md)."""

import datetime as dt
from typing import Annotated

from pydantic import Field

from admission.workload_rules import WorkloadRules
from api.workload_kinds import (
    BUILT_IN_CONTROLLERS,
    BUILT_IN_KINDS,
    GROUP_PATTERN,
    KIND_PATTERN,
    RESOURCE_PATTERN,
    TEMPLATE_PATH_PATTERN,
    WorkloadKind,
)
from server.setting_sections import Seconds, Section


class WorkloadKindSettings(Section):
    """A kind beside Kubernetes' own."""

    group: Annotated[str, Field(pattern=GROUP_PATTERN, max_length=253)]
    """Its API group."""
    kind: Annotated[str, Field(pattern=KIND_PATTERN, max_length=63)]
    """Its kind."""
    resource: Annotated[str, Field(pattern=RESOURCE_PATTERN, max_length=63)]
    """Its plural name in the API."""
    templates: Annotated[
        tuple[Annotated[str, Field(pattern=TEMPLATE_PATH_PATTERN)], ...],
        Field(min_length=1, max_length=16),
    ]
    """Paths of its pod templates, as `spec.workers.*.template`: `*` is every member of a list or a map."""
    copies_annotations: bool = False
    """Whether its controller copies annotations of the object, not of the template, to pods."""


class WorkloadAccessSettings(Section):
    """Workloads whose pods inherit access to a pool from the user who wrote their template (docs/access.md)."""

    kinds: tuple[WorkloadKindSettings, ...] = ()
    """Kinds beside Deployment, StatefulSet, ReplicaSet, DaemonSet, Job and CronJob: `group`, `kind`, `resource`,
    `templates` and `copies_annotations`."""
    controllers: tuple[str, ...] = BUILT_IN_CONTROLLERS
    """Names of users that create pods and other objects of templates: all controllers of these kinds, and no others."""
    access_valid_s: Seconds = 90 * 86_400
    """Time for which pods inherit access, from the last change of the template on."""

    @property
    def further_kinds(self) -> tuple[WorkloadKind, ...]:
        """Kinds beside Kubernetes' own, as admission knows them."""
        return tuple(
            WorkloadKind(
                group=item.group,
                kind=item.kind,
                resource=item.resource,
                templates=item.templates,
                is_annotated=item.copies_annotations,
            )
            for item in self.kinds
        )

    @property
    def rules(self) -> WorkloadRules:
        """Rules of admission."""
        return WorkloadRules(
            kinds={kind.key: kind for kind in (*BUILT_IN_KINDS, *self.further_kinds)},
            controllers=frozenset(self.controllers),
            validity=dt.timedelta(seconds=self.access_valid_s),
        )
