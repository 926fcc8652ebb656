{{/* Ports: calls, calls in frames, health for probes, metrics, the directory. */}}
{{- define "npucall.port" -}}50051{{- end }}
{{- define "npucall.framesPort" -}}51051{{- end }}
{{- define "npucall.healthPort" -}}50061{{- end }}
{{- define "npucall.metricsPort" -}}9464{{- end }}
{{- define "npucall.directoryPort" -}}50050{{- end }}

{{- define "npucall.name" -}}
{{- if contains "npucall" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-npucall{{ end }}
{{- end }}

{{/* Selects all pods of a release; its servers have a class in addition. */}}
{{- define "npucall.selector" -}}
app.kubernetes.io/name: npucall
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "npucall.servers" -}}
{{ include "npucall.selector" . }}
app.kubernetes.io/component: server
{{- end }}

{{- define "npucall.directory" -}}
{{ include "npucall.selector" . }}
app.kubernetes.io/component: directory
{{- end }}

{{- define "npucall.labels" -}}
{{ include "npucall.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* For a container: no root, no capabilities; it can write only to /tmp. */}}
{{- define "npucall.confined" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{/* For a pod; 10001 is the user of the images. */}}
{{- define "npucall.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Whether to listen without TLS, or without known callers: servers need a setting for that. */}}
{{- define "npucall.insecure" -}}
{{- if and .Values.tls.secretName (or .Values.tls.clientCertificates .Values.access.tenantsSecretName) }}false{{ else }}true{{ end }}
{{- end }}

{{/* Values that would render, and servers that would then be open or refused. */}}
{{- define "npucall.faults" -}}
{{- with .Values }}
{{- if and .access.tenantsSecretName (not .tls.secretName) }}
{{- fail "access.tenantsSecretName: expected tls.secretName beside it, since callers send tokens, found none" }}
{{- end }}
{{- if and .directory.enabled .access.tenantsSecretName (not .tls.clientCertificates) (not .directory.announceTokenSecretName) }}
{{- fail "directory.announceTokenSecretName: expected a Secret with the token of a role server, since the directory has tenants, found none; the directory would refuse every server" }}
{{- end }}
{{- end }}
{{- end }}

{{/* An egress rule: names. */}}
{{- define "npucall.resolving" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{/* Files of certificates and callers; `prefix` is the prefix of the variables. */}}
{{- define "npucall.access" -}}
- {name: {{ .prefix }}INSECURE_BIND, value: {{ include "npucall.insecure" .root | quote }}}
{{- with .root.Values.tls }}
{{- if .secretName }}
- {name: {{ $.prefix }}TLS_CERTIFICATE, value: /etc/npucall/tls/tls.crt}
- {name: {{ $.prefix }}TLS_KEY, value: /etc/npucall/tls/tls.key}
{{- if .clientCertificates }}
- {name: {{ $.prefix }}TLS_CLIENT_CA, value: /etc/npucall/tls/ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- with .root.Values.access }}
{{- if .tenantsSecretName }}
- {name: {{ $.prefix }}CONFIG, value: /etc/npucall/tenants/server.toml}
{{- end }}
{{- if .tokensSecretName }}
- {name: {{ $.prefix }}TOKEN_HASHES, value: /etc/npucall/tokens/tokens}
{{- end }}
{{- end }}
{{- end }}

{{- define "npucall.accessMounts" -}}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /etc/npucall/tls, readOnly: true}
{{- end }}
{{- if .Values.access.tenantsSecretName }}
- {name: tenants, mountPath: /etc/npucall/tenants, readOnly: true}
{{- end }}
{{- if .Values.access.tokensSecretName }}
- {name: tokens, mountPath: /etc/npucall/tokens, readOnly: true}
{{- end }}
{{- end }}

{{- define "npucall.accessVolumes" -}}
{{- if .Values.tls.secretName }}
- {name: tls, secret: {secretName: {{ .Values.tls.secretName | quote }}, defaultMode: 0440}}
{{- end }}
{{- if .Values.access.tenantsSecretName }}
- {name: tenants, secret: {secretName: {{ .Values.access.tenantsSecretName | quote }}, defaultMode: 0440}}
{{- end }}
{{- if .Values.access.tokensSecretName }}
- {name: tokens, secret: {secretName: {{ .Values.access.tokensSecretName | quote }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* gRPC probes of the health service. They cannot use TLS, so health has a port of its own. */}}
{{- define "npucall.probe" -}}
grpc: {port: {{ include "npucall.healthPort" . }}}
timeoutSeconds: 5
{{- end }}

{{/* What the pool knows about a server of a class in addition to its SoC. */}}
{{- define "npucall.poolLabels" -}}
kind={{ .kind }}{{ range $key, $value := .labels }},{{ $key }}={{ $value }}{{ end }}
{{- end }}

{{/* A class's resources, and one device. Requests of extended resources are their limits. */}}
{{- define "npucall.resources" -}}
{{- $resources := deepCopy .resources }}
{{- if eq .kind "npu" }}
{{- $limits := merge (dict .resourceName 1) ($resources.limits | default dict) }}
{{- $_ := set $resources "limits" $limits }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- define "npucall.directoryAddress" -}}
{{ include "npucall.name" . }}-directory.{{ .Release.Namespace }}.svc:{{ include "npucall.directoryPort" . }}
{{- end }}

{{/* The node's driver, which has to match its kernel module. */}}
{{- define "npucall.driverPaths" -}}
- {name: driver, path: /usr/local/Ascend/driver/lib64, type: Directory}
- {name: driver-version, path: /usr/local/Ascend/driver/version.info, type: File}
- {name: dcmi, path: /usr/local/dcmi, type: Directory}
- {name: install-info, path: /etc/ascend_install.info, type: File}
{{- end }}
