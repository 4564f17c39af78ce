{{/* The name of every object. A release has at most 53 characters, and an object's name 63. */}}
{{- define "tranche.name" -}}
{{ .Release.Name }}-kubelet
{{- end }}

{{/* The labels that select the pods. They cannot change in the life of a DaemonSet. */}}
{{- define "tranche.selector" -}}
app.kubernetes.io/name: tranche-kubelet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tranche.labels" -}}
{{ include "tranche.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ ternary "device-plugin" "dra-driver" .Values.devicePlugin }}
app.kubernetes.io/part-of: tranche
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The ConfigMap with the configurations of the nodes; empty: there is none. */}}
{{- define "tranche.config" -}}
{{- if and .Values.config.name .Values.config.map -}}
{{- fail "config.name and config.map: expected one of them" -}}
{{- end -}}
{{- if .Values.config.map -}}
{{ include "tranche.name" . }}-config
{{- else -}}
{{ .Values.config.name }}
{{- end -}}
{{- end }}

{{/* Whether the program has a reason to ask the API server: "true", or empty. */}}
{{- define "tranche.api" -}}
{{- if or .Values.events .Values.dra.enabled (include "tranche.config" .) -}}
true
{{- end -}}
{{- end }}

{{/* CRI-O refuses an image with both a tag and a digest. */}}
{{- define "tranche.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository: missing; run make image, push the image to a registry of your own, and set image.repository to its name there" $image.repository -}}
{{- if and $image.tag $image.digest -}}
{{- fail "image.tag and image.digest: expected one of them" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
