{{- /* Written by `make chart` from the builders of `manifests`. */ -}}
{{- define "gpu-control-plane.namesPool" -}}
{{- $found := list -}}
{{- range .templates -}}
{{- $pieces := printf "o.%s" . | replace "." ".?" | splitList ".?*" -}}
{{- $place := first $pieces -}}
{{- $text := "" -}}
{{- $end := "" -}}
{{- range rest $pieces -}}
{{- $text = printf "%s%s" $text ("[PLACE.orValue([])].exists(l, (type(l) == list ? l : l.map(k, l[k])).exists(m, " | replace "PLACE" $place) -}}
{{- $place = printf "m%s" . -}}
{{- $end = printf "%s))" $end -}}
{{- end -}}
{{- $found = append $found (printf "%s%s%s" $text ("(PLACE.?spec.?containers.orValue([]) + PLACE.?spec.?initContainers.orValue([])).exists(c, c.?resources.?limits.orValue({}).exists(k, k.startsWith('gpu.deckhouse.io/')) || c.?resources.?requests.orValue({}).exists(k, k.startsWith('gpu.deckhouse.io/'))) || PLACE.?metadata.?annotations[?'gpu.deckhouse.io/access'].hasValue()" | replace "PLACE" $place) $end) -}}
{{- end -}}
[object, oldObject].exists(o, o != null && (o.?metadata.?annotations[?'gpu.deckhouse.io/access'].hasValue() || {{ join " || " $found -}}))
{{- end -}}
{{- define "gpu-control-plane.workloadWebhooks" }}
{{- range dig "workloads" "kinds" (list) (include "gpu-control-plane.settings" . | fromYaml) }}
- name: "{{ .resource }}.{{ .group }}.workloads.gpu.deckhouse.io"
  clientConfig:
    service:
      namespace: {{ $.Release.Namespace | quote }}
      name: gpu-control-plane
      path: /mutate/workloads
      port: 443
  rules:
  - apiGroups:
    - {{ .group | quote }}
    apiVersions:
    - '*'
    operations:
    - CREATE
    - UPDATE
    resources:
    - {{ .resource | quote }}
    scope: Namespaced
  matchConditions:
  - name: names-a-pool
    expression: {{ include "gpu-control-plane.namesPool" . | quote }}
  - name: templates-changed
    expression: oldObject == null || request.?options.?force.hasValue() || object.?spec != oldObject.?spec || object.metadata.?annotations[?'gpu.deckhouse.io/access'] != oldObject.metadata.?annotations[?'gpu.deckhouse.io/access']
  matchPolicy: Equivalent
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 3
  admissionReviewVersions:
  - v1
  reinvocationPolicy: IfNeeded
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
      - {{ $.Release.Namespace | quote }}
      - kube-system
{{- end }}
{{- end }}
