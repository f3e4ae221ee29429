{{/* Reference of the server's image. */}}
{{- define "gpu-control-plane.image" -}}
{{- with .Values.image -}}
{{- printf "%s/%s:%s" .registry .repository (.tag | default $.Chart.AppVersion) -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Reference of kube-scheduler's image: the cluster's version, without a vendor's suffix. */}}
{{- define "gpu-control-plane.schedulerImage" -}}
{{- with .Values.scheduler.image -}}
{{- $release := regexReplaceAll "[-+].*$" $.Capabilities.KubeVersion.Version "" -}}
{{- printf "%s/%s:%s" .registry .repository (.tag | default $release) -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Puts the second map over the first, in place. `mergeOverwrite` would ignore false, 0 and "". */}}
{{- define "gpu-control-plane.overlay" -}}
{{- $base := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
{{- include "gpu-control-plane.overlay" (list (get $base $key) $value) -}}
{{- else -}}
{{- $_ := set $base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Settings file of the server: what follows from other values, and the values of `settings` over it. */}}
{{- define "gpu-control-plane.settings" -}}
{{- $settings := include "gpu-control-plane.baseSettings" . | fromYaml -}}
{{- include "gpu-control-plane.overlay" (list $settings .Values.settings) -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Images of the DaemonSets that the server makes, as a JSON list. */}}
{{- define "gpu-control-plane.operandImages" -}}
{{- $settings := include "gpu-control-plane.settings" . | fromYaml -}}
{{- $images := list $settings.device_plugin.image $settings.node_agent.image -}}
{{- $bootstrap := $settings.bootstrap | default dict -}}
{{- range $name := list "gfd" "dcgm" "dcgm_exporter" -}}
{{- with (index $bootstrap $name | default dict).image -}}
{{- $images = append $images . -}}
{{- end -}}
{{- end -}}
{{- $images | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* References of the pull secrets. */}}
{{- define "gpu-control-plane.pullSecrets" -}}
{{- range .Values.image.pullSecrets }}
- name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Subjects of the role that reads pools. */}}
{{- define "gpu-control-plane.poolViewers" -}}
{{- range .Values.poolViewers }}
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Volumes and mounts of the server for ConfigMaps of kernel caches. */}}
{{- define "gpu-control-plane.cacheVolumes" -}}
{{- with .Values.kernelCaches.registries.caConfigMap }}
- name: registries-ca
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- with .Values.kernelCaches.verification.trustRootConfigMap }}
- name: trust-root
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "gpu-control-plane.cacheMounts" -}}
{{- if .Values.kernelCaches.registries.caConfigMap }}
- name: registries-ca
  mountPath: /etc/gpu-control-plane/registries
  readOnly: true
{{- end }}
{{- if .Values.kernelCaches.verification.trustRootConfigMap }}
- name: trust-root
  mountPath: /etc/gpu-control-plane/trust-root
  readOnly: true
{{- end }}
{{- end -}}

{{/* Arguments of the console: the names by which browsers reach it, and whether it takes decisions. */}}
{{- define "gpu-control-plane.consoleArguments" -}}
{{- range .Values.console.hosts }}
- {{ printf "--host=%s" . | quote }}
{{- end }}
{{- if .Values.console.decisions }}
- --decisions
{{- end }}
{{- end -}}
