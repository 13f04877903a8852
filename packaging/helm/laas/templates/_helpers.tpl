{{- define "laas.labels" -}}
app.kubernetes.io/name: laas
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What a container of any process has; takes a list of the context and the command. */}}
{{- define "laas.container" -}}
{{- $context := index . 0 -}}
image: "{{ $context.Values.image.repository }}:{{ $context.Values.image.tag }}"
imagePullPolicy: {{ $context.Values.image.pullPolicy }}
command: {{ index . 1 | toJson }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  readOnlyRootFilesystem: true
volumeMounts:
  - {name: options, mountPath: /etc/laas/laas.conf.d, readOnly: true}
  - {name: state, mountPath: /var/lib/laas}
  - {name: temporary, mountPath: /tmp}
{{- end }}

{{- define "laas.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 901
  runAsGroup: 901
  fsGroup: 901
  seccompProfile: {type: RuntimeDefault}
automountServiceAccountToken: false
volumes:
  - name: options
    projected:
      sources:
        - configMap: {name: {{ .Release.Name }}-options}
        - secret: {name: {{ .Values.secretName }}}
  - name: state
    emptyDir: {}
  - name: temporary
    emptyDir: {}
{{- end }}
