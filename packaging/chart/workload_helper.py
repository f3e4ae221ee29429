"""Helper of the chart for the webhooks of `settings.workloads.kinds`, which Helm alone knows.

It is the webhook of `manifests`, with Helm's expressions in the place of the kind's fields and of the way to its
templates. A test on Helm compares the two.
"""

from typing import Any, Final, cast

from api.workload_kinds import WorkloadKind
from chart.template import template_of
from chart.tokens import Tokens
from manifests import constants
from manifests.install.webhooks import ServiceClient, WebhookSettings, workload_webhook
from manifests.workload_webhooks import (
    EITHER_NAMES,
    IN_MEMBER,
    IN_MEMBER_END,
    NAMES_POOL,
    PLACE,
    SPEC_CHANGED,
)

NAME: Final = f"{constants.NAME}.workloadWebhooks"
_NAMES_POOL: Final = f"{constants.NAME}.namesPool"
_EXPRESSION: Final = f"""{{{{- define "{_NAMES_POOL}" -}}}}
{{{{- $found := list -}}}}
{{{{- range .templates -}}}}
{{{{- $pieces := printf "o.%s" . | replace "." ".?" | splitList ".?*" -}}}}
{{{{- $place := first $pieces -}}}}
{{{{- $text := "" -}}}}
{{{{- $end := "" -}}}}
{{{{- range rest $pieces -}}}}
{{{{- $text = printf "%s%s" $text ("{IN_MEMBER}" | replace "{PLACE}" $place) -}}}}
{{{{- $place = printf "m%s" . -}}}}
{{{{- $end = printf "%s{IN_MEMBER_END}" $end -}}}}
{{{{- end -}}}}
{{{{- $found = append $found (printf "%s%s%s" $text ("{NAMES_POOL}" | replace "{PLACE}" $place) $end) -}}}}
{{{{- end -}}}}
{EITHER_NAMES.format('{{ join " || " $found -}}')}
{{{{- end -}}}}
"""


def workload_helper(settings: str) -> str:
    """Return the helper that gives the webhooks as a list; `settings` is Helm's expression of all settings."""
    tokens = Tokens()
    namespace = tokens.text("$.Release.Namespace")
    kind = WorkloadKind(group=tokens.text(".group"), kind="", resource=tokens.text(".resource"))
    webhook = workload_webhook(
        WebhookSettings(
            client=ServiceClient(namespace=namespace),
            excluded_namespaces=(namespace, *constants.DEFAULT_EXCLUDED_NAMESPACES[1:]),
        ),
        [kind],
        names_pool=tokens.text(f'include "{_NAMES_POOL}" .'),
        changed=SPEC_CHANGED,
    )
    body = template_of(cast("Any", [[webhook]]), tokens.expressions()).removeprefix("---\n")
    return (
        f'{_EXPRESSION}{{{{- define "{NAME}" }}}}\n'
        f'{{{{- range dig "workloads" "kinds" (list) ({settings}) }}}}\n{body}{{{{- end }}}}\n{{{{- end }}}}\n'
    )
