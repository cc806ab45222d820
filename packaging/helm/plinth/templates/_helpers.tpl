{{- define "plinth.name" -}}
{{- if contains "plinth" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-plinth" (.Release.Name | trunc 45 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "plinth.selector" -}}
app.kubernetes.io/name: plinth
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "plinth.labels" -}}
{{ include "plinth.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* One line in FoundationDB's format. Names, since addresses of pods change; the id is the release's for good. */ -}}
{{- define "plinth.clusterFile" -}}
{{- $name := include "plinth.name" . -}}
{{- $end := ternary ":tls" "" (ne .Values.tls.secret "") -}}
{{- $addresses := list -}}
{{- range $node := until (int .Values.nodes) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc.%s:4500%s" $name $node $name $.Release.Namespace $.Values.clusterDomain $end) -}}
{{- end -}}
{{- printf "%s:%s@%s" ($name | replace "-" "_" | replace "." "_") (printf "%s/%s" .Release.Namespace $name | sha256sum | trunc 16) (join "," $addresses) -}}
{{- end }}

{{- define "plinth.check" -}}
{{- if not (has (int .Values.nodes) (list 1 3 5 7)) }}{{ fail "nodes must be 1, 3, 5 or 7: a majority of an even number tolerates no more failures" }}{{ end -}}
{{- if and (not .Values.tls.secret) (not .Values.withoutTls) }}{{ fail "name a Secret with certificates (tls.secret), or allow traffic in the clear in so many words (withoutTls=true)" }}{{ end -}}
{{- end }}
