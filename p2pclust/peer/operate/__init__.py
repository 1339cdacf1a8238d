"""What operators see of a running peer: the control address, status, metrics, logs and the status page."""
