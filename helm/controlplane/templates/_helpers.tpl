{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: muster
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What a schema cannot say: relations between values. */}}
{{- define "muster.check" -}}
{{- $values := .Values -}}
{{- if $values.tls.terminatedElsewhere -}}
  {{- if $values.tls.certManager.enabled -}}
    {{- fail "tls: with terminatedElsewhere the pods have no certificate; leave certManager.enabled at false" -}}
  {{- end -}}
  {{- range $listener := list "agents" "people" -}}
    {{- if ne (get $values $listener).service.type "ClusterIP" -}}
      {{- fail (printf "%s.service.type: %s would carry plain HTTP out of the pod network; give the pods a certificate (tls.secretName, tls.certManager), or use ClusterIP behind what ends TLS" $listener (get $values $listener).service.type) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and $values.tls.certManager.enabled (not $values.tls.certManager.dnsNames) -}}
  {{- fail "tls.certManager.dnsNames: name at least the host of agents.url" -}}
{{- end -}}
{{- if and $values.tls.certManager.enabled (not $values.tls.certManager.issuer.name) -}}
  {{- fail "tls.certManager.issuer.name: name the issuer" -}}
{{- end -}}
{{- if and $values.people.ingress.enabled (not $values.people.ingress.host) -}}
  {{- fail "people.ingress.host: name the host" -}}
{{- end -}}
{{- range $role := list "api" "worker" -}}
  {{- $scaling := (get $values $role).autoscaling -}}
  {{- if gt (int64 $scaling.replicasMin) (int64 $scaling.replicasMax) -}}
    {{- fail (printf "%s.autoscaling: replicasMin %d is above replicasMax %d" $role (int64 $scaling.replicasMin) (int64 $scaling.replicasMax)) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "muster.scheme" -}}
{{ if .Values.tls.terminatedElsewhere }}HTTP{{ else }}HTTPS{{ end }}
{{- end }}

{{/* What every process is told: where the servers are, and as whom it speaks to them. */}}
{{- define "muster.environment" -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.secretName }}
      key: {{ .Values.database.secretKey }}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.redis.secretName }}
      key: {{ .Values.redis.secretKey }}
- name: MUSTER_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end }}

{{- define "muster.runtime" -}}
{{ include "muster.environment" . }}
- name: MUSTER_DATABASE_ROLE
  value: {{ .Values.database.role | quote }}
- name: MUSTER_DATABASE_POOL_SIZE
  value: {{ int64 .Values.database.poolSize | quote }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end }}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "muster.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where pods may write, and who vouches for the servers they speak to. */}}
{{- define "muster.mounts" -}}
{{- if .Values.trust.configMapName -}}
- name: trust
  mountPath: /etc/muster/trust
  readOnly: true
{{ end -}}
- name: scratch
  mountPath: /tmp
{{- end }}

{{- define "muster.volumes" -}}
{{- if .Values.trust.configMapName -}}
- name: trust
  configMap:
    name: {{ .Values.trust.configMapName }}
    items:
      - {key: {{ .Values.trust.key }}, path: ca.crt}
{{ end -}}
- name: scratch
  emptyDir:
    sizeLimit: 64Mi
{{- end }}

{{/* Which nodes a pod may use, and before whom: the same for all, hooks included. */}}
{{- define "muster.place" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels and annotations of a pod. Takes a dict: root, role. */}}
{{- define "muster.podMetadata" -}}
labels:
  {{- include "muster.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .role }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the pods of all four have in common. Takes a dict: root, role. */}}
{{- define "muster.pod" -}}
serviceAccountName: muster
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
securityContext:
  {{- include "muster.podSecurity" .root | nindent 2 }}
{{- include "muster.pullSecrets" .root }}
{{- include "muster.place" .root }}
topologySpreadConstraints:
  {{- $context := . }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "muster.selector" $context.root | nindent 8 }}
        app.kubernetes.io/component: {{ $context.role }}
  {{- end }}
{{- end }}
