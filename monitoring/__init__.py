"""Dashboards as code, and their preview: what Grafana shows of the controller's own series.

``python -m monitoring`` writes ``deploy/dashboards/*.json``; ``python -m monitoring.preview`` draws
the same panels from a Prometheus without a Grafana. Alerts are written by hand, in
``deploy/monitoring/prometheus-rule.yaml``.
"""
