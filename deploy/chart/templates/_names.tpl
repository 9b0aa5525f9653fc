{{- define "ccm.name" -}}
{{ .Values.fullnameOverride }}
{{- end }}

{{- define "ccm.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "ccm.name" .) }}
{{- end }}

{{- /* Names of what is not in a namespace. */}}
{{- define "ccm.role" -}}
system:{{ include "ccm.name" . }}
{{- end }}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
{{- end }}

{{- define "ccm.labels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/part-of: grpc-ccm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "ccm.subject" -}}
- kind: ServiceAccount
  name: {{ include "ccm.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* REGISTRY/REPOSITORY:TAG, or with @DIGEST: takes [root, image]. */}}
{{- define "ccm.image" -}}
{{- $root := index . 0 }}{{- $image := index . 1 }}
{{- if not (or $image.tag $image.digest (regexMatch "(^|/)(ccm|provider-(mock|python|go|digitalocean|hetzner))$" $image.repository)) }}
{{- fail (printf "%s: the image needs a tag or a digest: it is not released together with this chart (for the provider: provider.image.tag)" $image.repository) }}
{{- end }}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* "true" where one of these controllers is on: takes [root, name, …]. */}}
{{- define "ccm.runs" -}}
{{- $root := first . }}
{{- range rest . }}{{ if has . $root.Values.controllers }}true{{ end }}{{ end }}
{{- end }}
