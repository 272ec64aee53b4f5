{{/* The one name of everything that exists once per cluster: two agents in one cluster would be two masters. */}}
{{- define "muster-agent.name" -}}
muster-agent
{{- end }}

{{- define "muster-agent.selector" -}}
app.kubernetes.io/name: muster-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster-agent.labels" -}}
{{ include "muster-agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: agent
app.kubernetes.io/part-of: muster
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "muster-agent.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What a schema cannot say: relations between values and the release. */}}
{{- define "muster-agent.check" -}}
{{- range .Values.tenants -}}
{{- if eq .namespace $.Release.Namespace -}}
{{- fail (printf "tenants: namespace %s holds the agent itself, its key and its policy; workloads there could read them" .namespace) -}}
{{- end -}}
{{- end -}}
{{- end }}
