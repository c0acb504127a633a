"""Trials on a Kubernetes cluster: its settings, the pods that trials run in, and why those ended."""
