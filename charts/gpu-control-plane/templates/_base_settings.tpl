{{- /* Written by `make chart` from the builders of `manifests`. */ -}}
{{- define "gpu-control-plane.baseSettings" }}
{{- if eq .Values.tls.source "CertManager" }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_detector:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
tls:
  source: Files
  directory: /etc/gpu-control-plane/tls
extender:
  client_ca_file: /etc/gpu-control-plane/client-ca/ca.crt
{{- else }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_detector:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
