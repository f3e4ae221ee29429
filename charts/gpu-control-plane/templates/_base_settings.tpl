{{- /* Written by `make chart` from the builders of `manifests`. */ -}}
{{- define "gpu-control-plane.baseSettings" }}
{{- if .Values.kernelCaches.enabled }}
{{- if eq .Values.tls.source "CertManager" }}
{{- if .Values.nodeSoftware.enabled }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: true
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_software:
  enabled: true
  {{- with .Values.nodeSoftware.images }}
  images:
    {{- toYaml . | nindent 4 }}
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
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: true
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
tls:
  source: Files
  directory: /etc/gpu-control-plane/tls
extender:
  client_ca_file: /etc/gpu-control-plane/client-ca/ca.crt
{{- end }}
{{- else }}
{{- if .Values.nodeSoftware.enabled }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: true
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_software:
  enabled: true
  {{- with .Values.nodeSoftware.images }}
  images:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: true
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- else }}
{{- if eq .Values.tls.source "CertManager" }}
{{- if .Values.nodeSoftware.enabled }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: false
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_software:
  enabled: true
  {{- with .Values.nodeSoftware.images }}
  images:
    {{- toYaml . | nindent 4 }}
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
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: false
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
tls:
  source: Files
  directory: /etc/gpu-control-plane/tls
extender:
  client_ca_file: /etc/gpu-control-plane/client-ca/ca.crt
{{- end }}
{{- else }}
{{- if .Values.nodeSoftware.enabled }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: false
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
node_software:
  enabled: true
  {{- with .Values.nodeSoftware.images }}
  images:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else }}
namespace: {{ .Release.Namespace | quote }}
device_plugin:
  image: {{ include "gpu-control-plane.image" . | quote }}
node_agent:
  image: {{ include "gpu-control-plane.image" . | quote }}
  image_pull_policy: {{ .Values.image.pullPolicy | quote }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
kernel_caches:
  enabled: false
  registries:
    ca_config_map: {{ .Values.kernelCaches.registries.caConfigMap | quote }}
  verification:
    trust_root_config_map: {{ .Values.kernelCaches.verification.trustRootConfigMap | quote }}
  {{- with .Values.kernelCaches.pullSecrets }}
  pull_secrets:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
