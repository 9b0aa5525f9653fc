{{- define "ccm.name" -}}
{{ .Values.fullnameOverride }}
{{- end }}

{{- define "ccm.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "ccm.name" .) }}
{{- end }}

{{- /* The name of the ClusterRole. The names of the other roles and of the bindings begin with it. */}}
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
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ccm.subject" -}}
- kind: ServiceAccount
  name: {{ include "ccm.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* REGISTRY/REPOSITORY:TAG, or with @DIGEST: takes [root, its place in the values, image]. Each name has a registry: without one, the container runtime would add docker.io, where anybody may own the name. */}}
{{- define "ccm.image" -}}
{{- $root := index . 0 }}{{- $place := index . 1 }}{{- $image := index . 2 }}
{{- if not $image.repository }}
{{- fail (printf "%s.repository: no provider is named. Write provider-digitalocean, provider-hetzner or provider-aws (deploy/examples has values for each), provider-mock for a cloud in memory to try things out, or your own image, with its registry and tag" $place) }}
{{- end }}
{{- $ours := regexMatch "(^|/)(ccm|provider-(mock|python|go|digitalocean|hetzner|aws))$" $image.repository }}
{{- if not (or $image.tag $image.digest $ours) }}
{{- fail (printf "%s.tag: %s is not released together with this chart, so it needs a tag or a digest" $place $image.repository) }}
{{- end }}
{{- $registry := $image.registry }}
{{- if and (not $registry) $ours (not (contains "/" $image.repository)) }}{{ $registry = $root.Values.registry }}{{ end }}
{{- if not (or $registry (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $image.repository)) }}
{{- fail (printf "%s.registry: %s names no registry; write its host, such as registry.example" $place $image.repository) }}
{{- end }}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Not empty if one of these controllers is on: takes [root, name, …]. */}}
{{- define "ccm.runs" -}}
{{- $root := first . }}
{{- range rest . }}{{ if has . $root.Values.controllers }}true{{ end }}{{ end }}
{{- end }}
