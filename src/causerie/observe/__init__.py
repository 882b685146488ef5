"""What operators see of a service: log lines, metrics, traces, alerts and letters."""
